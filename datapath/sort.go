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
