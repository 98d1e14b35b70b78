package kube

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

// deployment replaces Pods of an older template as the Deployment's strategy says. Recreate: they go first. Rolling: of
// all together there are at most maxSurge more than wanted, and at most maxUnavailable fewer are ready: with the
// defaults a new one is made first, and an old one goes when it is ready.
func (s *workload) deployment(d *appsv1.Deployment) {
	want := len(s.names)
	fresh, old := s.split()
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		for _, pod := range old {
			s.delete(pod)
		}
		s.replicas(fresh, want)
		return
	}
	surge, unavailable := rolling(d.Spec.Strategy.RollingUpdate, want)
	switch room := want + surge - len(fresh) - len(old); {
	case len(fresh) > want:
		s.replicas(fresh, want)
	case len(fresh) < want && room > 0:
		s.createNumbered(min(want-len(fresh), room))
	}
	fresh, old = s.split()
	ready := countReady(fresh)
	spare := len(fresh) + len(old) - (want - unavailable) - (len(fresh) - ready)
	// Old ones that are not ready go first: nobody misses them.
	for _, pod := range old {
		if spare > 0 && !isReady(pod) {
			s.delete(pod)
			spare--
		}
	}
	_, old = s.split()
	spare = min(spare, ready+countReady(old)-(want-unavailable))
	for i := len(old) - 1; i >= 0 && spare > 0; i-- {
		s.delete(old[i])
		spare--
	}
}

// split returns the Pods that count, those of the present template and older ones.
func (s *workload) split() (fresh, old []*corev1.Pod) {
	for _, pod := range s.active() {
		if s.current(pod) {
			fresh = append(fresh, pod)
		} else {
			old = append(old, pod)
		}
	}
	return fresh, old
}

func countReady(pods []*corev1.Pod) (n int) {
	for _, pod := range pods {
		n += truth(isReady(pod))
	}
	return n
}

// rolling returns maxSurge, of a share rounded up, and maxUnavailable, rounded down; one of them is at least 1.
func rolling(r *appsv1.RollingUpdateDeployment, want int) (surge, unavailable int) {
	// The defaults are filled in, and what is no number was refused.
	surge, _ = intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, want, true)
	unavailable, _ = intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, want, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, want)
}

// statefulSet makes the Pods that are missing, removes those with higher numbers, and replaces the one of an older template
// with the highest number, if all others are ready.
func (s *workload) statefulSet(set *appsv1.StatefulSet) {
	s.named()
	if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return
	}
	first := int(*set.Spec.UpdateStrategy.RollingUpdate.Partition)
	byName := s.byName()
	if set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
		for _, name := range s.names {
			if pod := byName[name]; pod == nil || pod.DeletionTimestamp != nil || !isReady(pod) {
				return
			}
		}
	}
	for i := len(s.names) - 1; i >= first; i-- {
		switch pod := byName[s.names[i]]; {
		case pod == nil || pod.DeletionTimestamp != nil:
			return
		case !s.current(pod):
			s.delete(pod)
			s.create(s.names[i], i, "")
			return
		case !isReady(pod):
			return
		}
	}
}

// daemonSet makes the Pods that are missing, removes those of nodes that are not selected, and replaces Pods of an older
// template while at most maxUnavailable nodes have none that is ready.
func (s *workload) daemonSet(set *appsv1.DaemonSet) {
	s.named()
	if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return
	}
	// The default is filled in, and what is no number was refused.
	limit, _ := intstr.GetScaledValueFromIntOrPercent(set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, len(s.names), true)
	byName := s.byName()
	unavailable := 0
	for _, name := range s.names {
		pod := byName[name]
		unavailable += truth(pod == nil || pod.DeletionTimestamp != nil || !isReady(pod))
	}
	for i, name := range s.names {
		pod := byName[name]
		if pod == nil || pod.DeletionTimestamp != nil || s.current(pod) {
			continue
		}
		if isReady(pod) {
			if unavailable >= max(limit, 1) {
				continue
			}
			unavailable++
		}
		s.delete(pod)
		s.create(name, i, s.nodes[i])
	}
}

// named makes the Pods of those names that there are none of, and removes those of other names.
func (s *workload) named() {
	byName := s.byName()
	wanted := make(map[string]bool, len(s.names))
	for _, name := range s.names {
		wanted[name] = true
	}
	for _, pod := range s.active() {
		if !wanted[pod.Name] {
			s.delete(pod)
		}
	}
	for i, name := range s.names {
		node := ""
		if s.nodes != nil {
			node = s.nodes[i]
		}
		if byName[name] == nil {
			s.create(name, i, node)
		}
	}
}

func (s *workload) byName() map[string]*corev1.Pod {
	out := make(map[string]*corev1.Pod, len(s.pods))
	for _, pod := range s.pods {
		out[pod.Name] = pod
	}
	return out
}

// admitDeploymentStrategy defaults and validates how Pods of an older template are replaced.
func admitDeploymentStrategy(p *problems, s *appsv1.DeploymentStrategy) {
	if s.Type == "" {
		s.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	oneOf(p, "spec.strategy.type", s.Type, appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType)
	if s.Type != appsv1.RollingUpdateDeploymentStrategyType {
		if s.RollingUpdate != nil {
			p.textf("spec.strategy.rollingUpdate", "may only be set for type RollingUpdate; found %s", s.Type)
		}
		return
	}
	if s.RollingUpdate == nil {
		s.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
	r := s.RollingUpdate
	quarter := intstr.FromString("25%")
	r.MaxSurge, r.MaxUnavailable = ptr.To(ptr.Deref(r.MaxSurge, quarter)), ptr.To(ptr.Deref(r.MaxUnavailable, quarter))
	validShare(p, "spec.strategy.rollingUpdate.maxSurge", r.MaxSurge, false)
	validShare(p, "spec.strategy.rollingUpdate.maxUnavailable", r.MaxUnavailable, true)
	if isZero(r.MaxSurge) && isZero(r.MaxUnavailable) {
		p.textf("spec.strategy.rollingUpdate.maxUnavailable", "may not be 0 when maxSurge is 0")
	}
}

// admitStatefulSetStrategy is the same of a StatefulSet.
func admitStatefulSetStrategy(p *problems, s *appsv1.StatefulSetSpec) {
	if s.PodManagementPolicy == "" {
		s.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	oneOf(p, "spec.podManagementPolicy", s.PodManagementPolicy, appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)
	u := &s.UpdateStrategy
	if u.Type == "" {
		u.Type = appsv1.RollingUpdateStatefulSetStrategyType
	}
	oneOf(p, "spec.updateStrategy.type", u.Type, appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType)
	if u.Type != appsv1.RollingUpdateStatefulSetStrategyType {
		if u.RollingUpdate != nil {
			p.textf("spec.updateStrategy.rollingUpdate", "may only be set for type RollingUpdate; found %s", u.Type)
		}
		return
	}
	if u.RollingUpdate == nil {
		u.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{}
	}
	u.RollingUpdate.Partition = ptr.To(ptr.Deref(u.RollingUpdate.Partition, 0))
	if n := *u.RollingUpdate.Partition; n < 0 {
		p.bad("spec.updateStrategy.rollingUpdate.partition", n, "0 and more")
	}
}

// admitDaemonSetStrategy is the same of a DaemonSet.
func admitDaemonSetStrategy(p *problems, u *appsv1.DaemonSetUpdateStrategy) {
	if u.Type == "" {
		u.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	oneOf(p, "spec.updateStrategy.type", u.Type, appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType)
	if u.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return
	}
	if u.RollingUpdate == nil {
		u.RollingUpdate = &appsv1.RollingUpdateDaemonSet{}
	}
	r := u.RollingUpdate
	r.MaxUnavailable, r.MaxSurge = ptr.To(ptr.Deref(r.MaxUnavailable, intstr.FromInt32(1))), ptr.To(ptr.Deref(r.MaxSurge, intstr.FromInt32(0)))
	validShare(p, "spec.updateStrategy.rollingUpdate.maxUnavailable", r.MaxUnavailable, true)
	switch {
	case !isZero(r.MaxSurge):
		p.textf("spec.updateStrategy.rollingUpdate.maxSurge", "is not modelled: found %s, allowed: 0", r.MaxSurge)
	case isZero(r.MaxUnavailable):
		p.textf("spec.updateStrategy.rollingUpdate.maxUnavailable", "may not be 0 when maxSurge is 0")
	}
}

// validShare checks a number, or a share in percent.
func validShare(p *problems, field string, v *intstr.IntOrString, atMostAll bool) {
	switch {
	case v.Type == intstr.Int && v.IntVal < 0:
		p.bad(field, v.IntVal, "0 and more, or a share as 25%%")
	case v.Type == intstr.String && len(validation.IsValidPercent(v.StrVal)) > 0:
		p.bad(field, v.StrVal, "0 and more, or a share as 25%%")
	case v.Type == intstr.String && atMostAll && len(v.StrVal) > 3 && v.StrVal != "100%":
		p.bad(field, v.StrVal, "at most 100%%")
	}
}

func isZero(v *intstr.IntOrString) bool {
	return v.Type == intstr.Int && v.IntVal == 0 || v.Type == intstr.String && strings.Trim(v.StrVal, "0") == "%"
}
