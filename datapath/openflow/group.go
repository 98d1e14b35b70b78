package openflow

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"towtank/datapath"
)

// GroupType is the type of a group.
type GroupType uint8

// The types that are supported.
const (
	GroupAll      GroupType = iota // every bucket gets a copy
	GroupSelect                    // one bucket gets the packet
	GroupIndirect                  // the only bucket gets the packet
)

var groupTypeNames = [...]string{"all", "select", "indirect"}

// String returns the name that ovs-ofctl uses.
func (t GroupType) String() string {
	if int(t) < len(groupTypeNames) {
		return groupTypeNames[t]
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// Bucket is one action list of a group. Weight counts in select groups; 1 if it is not given.
type Bucket struct {
	ID      uint32
	Weight  uint16
	Actions []Action
}

// GroupSpec says what a group is. SelectionMethod is "" (OVS's own choice: it does not hash UDP
// ports), "dp_hash" or "hash"; HashFields go with "hash" and are kept sorted as OVS prints them.
type GroupSpec struct {
	ID              uint32
	Type            GroupType
	SelectionMethod string
	HashFields      []Field
	Buckets         []Bucket
}

// Group is an OpenFlow group. Groups are immutable; use NewGroup or ParseGroup.
type Group struct {
	spec      GroupSpec
	key, text string
}

// NewGroup returns the group, or an error that names it if OVS would refuse it. The buckets are the group's from
// then on: the caller must not change them.
func NewGroup(s GroupSpec) (*Group, error) {
	s.HashFields = slices.Clone(s.HashFields)
	slices.Sort(s.HashFields)
	g := &Group{spec: s}
	if err := g.check(); err != nil {
		return nil, fmt.Errorf("group group_id=%d: %w", s.ID, err)
	}
	scratch := scratches.Get().(*[]byte)
	*scratch = g.appendText((*scratch)[:0])
	g.text = string(*scratch)
	scratches.Put(scratch)
	g.key = g.text[:strings.IndexByte(g.text, ',')] // the text begins with it
	return g, nil
}

// ID returns the group id.
func (g *Group) ID() uint32 { return g.spec.ID }

// Type returns the type.
func (g *Group) Type() GroupType { return g.spec.Type }

// SelectionMethod returns "", "dp_hash" or "hash".
func (g *Group) SelectionMethod() string { return g.spec.SelectionMethod }

// HashFields returns the fields that selection_method=hash hashes. The caller must not change them.
func (g *Group) HashFields() []Field { return g.spec.HashFields }

// Buckets returns the buckets. The caller must not change them.
func (g *Group) Buckets() []Bucket { return g.spec.Buckets }

// Kind returns datapath.KindGroup.
func (*Group) Kind() datapath.Kind { return datapath.KindGroup }

// Key identifies the group as "group_id=N".
func (g *Group) Key() datapath.Key {
	return datapath.Key{Kind: datapath.KindGroup, Name: g.key}
}

// String returns the text as ovs-ofctl dump-groups prints it.
func (g *Group) String() string { return g.text }

// Groups appends the groups that the buckets use.
func (g *Group) Groups(ids []uint32) []uint32 {
	for i := range g.spec.Buckets {
		ids = usedGroups(ids, g.spec.Buckets[i].Actions)
	}
	return ids
}

// Meters appends the meters that the buckets use.
func (g *Group) Meters(ids []uint32) []uint32 {
	for i := range g.spec.Buckets {
		ids = usedMeters(ids, g.spec.Buckets[i].Actions)
	}
	return ids
}

func (g *Group) appendText(b []byte) []byte {
	s := &g.spec
	b = strconv.AppendUint(append(b, "group_id="...), uint64(s.ID), 10)
	b = append(append(b, ",type="...), s.Type.String()...)
	if s.SelectionMethod != "" {
		b = append(append(b, ",selection_method="...), s.SelectionMethod...)
	}
	for i, f := range s.HashFields {
		if i == 0 {
			b = append(b, ",fields("...)
		} else {
			b = append(b, ',')
		}
		b = append(b, f.Name()...)
	}
	if len(s.HashFields) > 0 {
		b = append(b, ')')
	}
	for i := range s.Buckets {
		k := &s.Buckets[i]
		b = strconv.AppendUint(append(b, ",bucket=bucket_id:"...), uint64(k.ID), 10)
		if s.Type == GroupSelect && k.Weight != 1 {
			b = strconv.AppendUint(append(b, ",weight:"...), uint64(k.Weight), 10)
		}
		b = appendActions(append(b, ",actions="...), k.Actions)
	}
	return b
}

// maxBucketID is the largest id of a bucket (OpenFlow OFPG_BUCKET_MAX).
const maxBucketID = 0xffffff00

// badBucketID returns an id that is there twice or too large.
func badBucketID(buckets []Bucket) (id uint32, bad bool) {
	rising := true
	for i := 1; i < len(buckets) && rising; i++ {
		rising = buckets[i-1].ID < buckets[i].ID
	}
	if n := len(buckets); rising {
		if n == 0 || buckets[n-1].ID <= maxBucketID {
			return 0, false
		}
		return buckets[n-1].ID, true
	}
	ids := make([]uint32, len(buckets))
	for i := range buckets {
		ids[i] = buckets[i].ID
	}
	slices.Sort(ids)
	for i, id := range ids {
		if id > maxBucketID || i > 0 && id == ids[i-1] {
			return id, true
		}
	}
	return 0, false
}

func (g *Group) check() error {
	s := &g.spec
	if err := checkGroupID(s.ID); err != nil {
		return err
	}
	if s.Type > GroupIndirect {
		return fmt.Errorf("%s: want all, select or indirect", s.Type)
	}
	switch s.SelectionMethod {
	case "", "dp_hash", "hash":
	default:
		return fmt.Errorf("selection_method %q: want none, dp_hash or hash", s.SelectionMethod)
	}
	if s.SelectionMethod != "" && s.Type != GroupSelect {
		return errors.New("a selection_method is for select groups only")
	}
	if len(s.HashFields) > 0 && s.SelectionMethod != "hash" {
		return errors.New("fields may be given with selection_method=hash only")
	}
	for i, f := range s.HashFields {
		if f == FieldNone || f >= numFields || i > 0 && f == s.HashFields[i-1] {
			return fmt.Errorf("fields: %s is no field or is there twice", f)
		}
	}
	if s.Type == GroupIndirect && len(s.Buckets) != 1 {
		return fmt.Errorf("an indirect group has one bucket, not %d", len(s.Buckets))
	}
	if id, bad := badBucketID(s.Buckets); bad {
		return fmt.Errorf("bucket_id %d is there twice or over 4294967040 (OFPGMFC_BAD_BUCKET)", id)
	}
	var c context
	for i := range s.Buckets {
		k := &s.Buckets[i]
		if s.Type != GroupSelect && k.Weight > 1 {
			return fmt.Errorf("bucket %d: only select groups can have bucket weights", k.ID)
		}
		c = context{unconfirmed: true}
		for _, a := range k.Actions {
			if a == nil {
				return fmt.Errorf("bucket %d: an action is nil", k.ID)
			}
			if err := a.check(&c); err != nil {
				return fmt.Errorf("bucket %d: %w", k.ID, err)
			}
			if _, ok := a.(GotoAction); ok {
				return fmt.Errorf("bucket %d: goto_table is not allowed in a bucket", k.ID)
			}
		}
	}
	return nil
}
