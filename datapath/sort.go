package datapath

import "slices"

// SortObjects sorts objects by their keys, each of which is made once; objects of one key stay in order.
func SortObjects(list []Object) {
	type keyed struct {
		key Key
		obj Object
	}
	all := make([]keyed, len(list))
	for i, o := range list {
		all[i] = keyed{o.Key(), o}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return a.key.Compare(b.key) })
	for i := range all {
		list[i] = all[i].obj
	}
}

// Arranged returns a list sorted by place as Arrange sorts indices; the list itself if it is in order.
func Arranged[T any](list []T, place func(T) int) []T {
	at := Arrange(len(list), func(i int) int { return place(list[i]) })
	if at == nil {
		return list
	}
	out := make([]T, len(list))
	for i, from := range at {
		out[i] = list[from]
	}
	return out
}

// Arrange returns the indices of n things by their places, from 0 to less than 128; things of one place stay in order. It
// asks for the place of each thing once, in order, and returns nil if they are in order already.
func Arrange(n int, place func(i int) int) []int {
	var few [64]uint8
	of := few[:0]
	if n > len(few) {
		of = make([]uint8, 0, n)
	}
	var starts [128 + 1]int
	sorted := true
	for i := range n {
		p := place(i)
		sorted = sorted && (i == 0 || int(of[i-1]) <= p)
		of = append(of, uint8(p))
		starts[p+1]++
	}
	if sorted {
		return nil
	}
	for p := range len(starts) - 1 {
		starts[p+1] += starts[p]
	}
	out := make([]int, n)
	for i, p := range of {
		out[starts[p]] = i
		starts[p]++
	}
	return out
}
