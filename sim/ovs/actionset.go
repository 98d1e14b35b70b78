package ovs

import "towtank/datapath/openflow"

// Final actions of an action set, by what wins: of those that are there, only the last of the highest rank is
// run (OVS, ofp-actions.c, ACTION_SET_FINAL_PRIORITY).
const (
	finalNone = iota
	finalCT
	finalCTClear
	finalResubmit
	finalOutput
	finalGroup
)

// actionSet returns the actions of a bucket as OVS runs them: a bucket is an action set (OpenFlow 1.5, 5.6), not
// a list. First comes the last pop_vlan, push_vlan and dec_ttl, then all set_field and move in their order, then
// one final action; what is of no rank (learn, output:reg, meter) is left out. Without a final action nothing is
// run at all. A list that is such a set already, as those of nearly all buckets are, is returned as it is.
func actionSet(list []openflow.Action) []openflow.Action {
	if isActionSet(list) {
		return list
	}
	var slots [3]openflow.Action
	var sets []openflow.Action
	var final openflow.Action
	rank := finalNone
	end := func(a openflow.Action, r int) {
		if r >= rank {
			final, rank = a, r
		}
	}
	for _, a := range list {
		switch a := a.(type) {
		case openflow.PopVLANAction:
			slots[0] = a
		case openflow.PushVLANAction:
			slots[1] = a
		case openflow.DecTTLAction:
			slots[2] = a
		case openflow.SetFieldAction, openflow.MoveAction:
			sets = append(sets, a)
		case openflow.CT:
			end(a, finalCT)
		case openflow.CTClearAction:
			end(a, finalCTClear)
		case openflow.ResubmitAction:
			end(a, finalResubmit)
		case openflow.OutputAction:
			end(a, finalOutput)
		case openflow.GroupAction:
			end(a, finalGroup)
		}
	}
	if final == nil {
		return nil
	}
	out := make([]openflow.Action, 0, len(list))
	for _, a := range slots {
		if a != nil {
			out = append(out, a)
		}
	}
	return append(append(out, sets...), final)
}

// isActionSet reports whether a list has nothing but set_field and move before one final action.
func isActionSet(list []openflow.Action) bool {
	for i, a := range list {
		switch a.(type) {
		case openflow.SetFieldAction, openflow.MoveAction:
		case openflow.CT, openflow.CTClearAction, openflow.ResubmitAction, openflow.OutputAction, openflow.GroupAction:
			return i == len(list)-1
		default:
			return false
		}
	}
	return false
}
