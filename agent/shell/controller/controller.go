// Package controller runs the pool allocation, and with membership=egressgroup the groups, in production: with
// client-go, and as one of several of which one leads, as Kubernetes' own controllers do.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"towtank/agent"
	"towtank/agent/apis/crd/v1beta1/clientset"
	"towtank/agent/groups"
	"towtank/agent/pools"
	"towtank/agent/shell"
)

// LeaseName is the name of the Lease that the leader holds.
const LeaseName = "towtank-controller"

// Options say where the controller finds what it needs.
type Options struct {
	Kube     kubernetes.Interface
	CRD      clientset.Interface
	Recorder record.EventRecorder
	Log      klog.Logger

	// Groups has it compute EgressGroups, too.
	Groups bool

	// Elect has the controller do nothing until it leads. Identity tells it from the others; Namespace is where
	// the Lease is.
	Elect               bool
	Identity, Namespace string
	// LeaseDuration is how long the others wait for a leader that says nothing, RenewDeadline how long the leader
	// tries to say something, RetryPeriod how often. 0: 15 s, 10 s and 2 s, as kube-controller-manager has them.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration

	// StatusSocket is where it answers questions about itself (shell.Inspector), MetricsAddress the TCP address of its
	// metrics and probes (shell.ServeMetrics); "": nowhere.
	StatusSocket, MetricsAddress string
}

func (o *Options) defaults() {
	if o.LeaseDuration == 0 {
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 15*time.Second, 10*time.Second, 2*time.Second
	}
}

// errLost ends a controller that led and does not any more: what it knows may be out of date, so it starts anew.
var errLost = errors.New("another controller leads, or the Lease could not be renewed")

// controller is the state machine with what is around it.
type controller struct {
	o       Options
	q       *shell.Queue
	cluster *shell.Cluster
	pools   *pools.Controller
	groups  *groups.Controller // nil: not wanted
	leading bool               // the queue's goroutine's
}

// Run runs the controller until ctx ends, then it returns nil; or until it does not lead any more.
func Run(ctx context.Context, o Options) error {
	o.defaults()
	c := &controller{o: o, q: shell.NewQueue()}
	c.cluster = shell.NewCluster(c.q, o.Kube, o.CRD, o.Recorder, c.handle, o.Log)
	clock, journal := shell.NewClock(c.q), shell.NewJournal(func(string) []string { return nil })
	c.pools = pools.New(pools.Seams{Cluster: journal.Cluster(c.cluster), Clock: clock, Post: c.q.Post, Log: o.Log})
	if o.Groups {
		c.groups = groups.New(groups.Seams{Cluster: journal.Cluster(c.cluster), Clock: clock, Post: c.q.Post, Log: o.Log})
	}

	inspector := &shell.Inspector{Queue: c.q, Subject: c, Cluster: c.cluster, Clock: clock, Journal: journal}
	closeInspector, err := inspector.Serve(o.StatusSocket, o.MetricsAddress, shell.ControllerMetrics)
	if err != nil {
		return err
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// The Lease is held a little longer than the work lasts, so that nobody else begins before it has ended.
	election, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	elected := make(chan struct{})
	go func() {
		defer close(elected)
		c.elect(election, work, stop)
	}()
	go func() {
		select {
		case <-c.q.Overflow():
			stop(fmt.Errorf("%d events wait: start again from what is there", shell.MaxQueued))
		case <-work.Done():
		}
	}()
	c.q.Run(work)
	c.stop()
	c.cluster.Wait()
	resign()
	<-elected
	err = context.Cause(work)
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, closeInspector())
}

// elect begins the work once this controller leads, and ends it when it does not any more. Without election it
// begins at once.
func (c *controller) elect(election, work context.Context, stop context.CancelCauseFunc) {
	begin := func() {
		c.o.Log.Info("Allocating addresses of pools", "identity", c.o.Identity)
		c.q.Post(func() { c.leading = true })
		if err := c.cluster.WatchController(work, c.o.Groups); err != nil {
			stop(err)
		}
	}
	if !c.o.Elect {
		begin()
		return
	}
	le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: c.o.Namespace, Name: LeaseName}, Client: c.o.Kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.o.Identity, EventRecorder: c.o.Recorder},
		},
		LeaseDuration: c.o.LeaseDuration, RenewDeadline: c.o.RenewDeadline, RetryPeriod: c.o.RetryPeriod, ReleaseOnCancel: true, Name: LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { begin() },
			OnStoppedLeading: func() {},
			OnNewLeader:      func(id string) { c.o.Log.Info("There is a leader", "identity", id) },
		},
	})
	if err != nil {
		stop(fmt.Errorf("leader election: %w", err))
		return
	}
	wait, cancel := context.WithCancel(election)
	defer cancel()
	go func() {
		// Who does not lead when the work is to end has nothing to wait for.
		<-work.Done()
		if !le.IsLeader() {
			cancel()
		}
	}()
	le.Run(wait)
	stop(errLost)
}

func (c *controller) handle(ev any) {
	c.pools.Handle(ev)
	if c.groups != nil {
		c.groups.Handle(ev)
	}
}

func (c *controller) stop() {
	c.pools.Stop()
	if c.groups != nil {
		c.groups.Stop()
	}
}

// Status implements shell.Subject.
func (c *controller) Status() agent.Status {
	s := agent.Status{Ready: c.leading && c.heard(), Idle: c.leading && c.pools.Idle(), Connected: true, Pending: c.pools.Writing()}
	if c.groups != nil {
		s.Idle = s.Idle && c.groups.Idle()
		s.Pending = append(s.Pending, c.groups.Writing()...)
	}
	return s
}

func (c *controller) heard() bool { return c.pools.Ready() && (c.groups == nil || c.groups.Ready()) }

// Leading reports whether this controller leads.
func (c *controller) Leading() bool { return c.leading }

// Ready implements shell.Subject: one that waits to lead is as ready as it can be.
func (c *controller) Ready() bool { return !c.leading || c.heard() }
