package ovs

import (
	"slices"

	"towtank/datapath/openflow"
)

// Foreign returns the text of what somebody else than the agent put on the switch, sorted: flows whose
// cookie is not ours and that were not learned, and ports without an external id of ours. Groups and meters carry no
// mark: all of them are the agent's.
func (s *Switch) Foreign() []string {
	s.Tick()
	var out []string
	for r := range s.rules() {
		if !r.learned && !openflow.OurCookie(r.flow.Cookie()) {
			out = append(out, "flow "+r.flow.String())
		}
	}
	//determinism:ignore isOurs only looks, and the list is sorted
	for _, st := range s.ports {
		if st.Port != nil && !isOurs(st) {
			out = append(out, "port "+st.Port.String())
		}
	}
	slices.Sort(out)
	return out
}

func isOurs(st *PortState) bool { return st.Port.Ours() }
