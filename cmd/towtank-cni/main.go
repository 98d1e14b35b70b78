// Command towtank-cni is the CNI plugin: it hands every call to the agent of its node, over a unix
// socket, and prints what the agent answers. It keeps nothing.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"towtank/agent/edge"
	"towtank/agent/shell"
)

// config is the plugin's part of the network configuration.
type config struct {
	types.PluginConf
	// Socket of the agent; empty is shell.DefaultSocket.
	Socket string `json:"socket,omitempty"`
}

// podArgs is what kubelet passes in CNI_ARGS.
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE types.UnmarshallableString //nolint:revive // the names are the field's
	K8S_POD_NAME      types.UnmarshallableString //nolint:revive // the names are the field's
}

// callTimeout is how long an answer is waited for; the agent answers an ADD within 30 s.
const callTimeout = 90 * time.Second

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: add, Del: func(a *skel.CmdArgs) error { return simple("DEL", a) }, Check: check,
		GC: func(a *skel.CmdArgs) error { return simple("GC", a) }, Status: func(a *skel.CmdArgs) error { return simple("STATUS", a) },
	}, version.All, "towtank")
}

// prepare reads configuration and arguments of a call.
func prepare(command string, args *skel.CmdArgs) (*config, *shell.CNICall, error) {
	var c config
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return nil, nil, types.NewError(types.ErrDecodingFailure, "network configuration: "+err.Error(), "")
	}
	if c.Socket == "" {
		c.Socket = shell.DefaultSocket
	}
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return nil, nil, types.NewError(types.ErrDecodingFailure, "prevResult: "+err.Error(), "")
	}
	var pod podArgs
	if args.Args != "" {
		if err := types.LoadArgs(args.Args, &pod); err != nil {
			return nil, nil, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: "+err.Error(), "")
		}
	}
	call := &shell.CNICall{
		Command: command, ContainerID: args.ContainerID, Netns: args.Netns, Ifname: args.IfName,
		PodNamespace: string(pod.K8S_POD_NAMESPACE), PodName: string(pod.K8S_POD_NAME),
	}
	for _, v := range c.ValidAttachments {
		call.Valid = append(call.Valid, edge.Attachment{ContainerID: v.ContainerID, Ifname: v.IfName})
	}
	return &c, call, nil
}

// send makes the call and turns an answer with a code into a CNI error.
func send(c *config, call *shell.CNICall) (*shell.CNIAnswer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	a := shell.Call(ctx, c.Socket, *call)
	if a.Code != 0 {
		return nil, types.NewError(uint(a.Code), a.Msg, "")
	}
	return a, nil
}

func simple(command string, args *skel.CmdArgs) error {
	c, call, err := prepare(command, args)
	if err != nil {
		return err
	}
	_, err = send(c, call)
	return err
}

func add(args *skel.CmdArgs) error {
	c, call, err := prepare("ADD", args)
	if err != nil {
		return err
	}
	a, err := send(c, call)
	if err != nil {
		return err
	}
	return types.PrintResult(resultOf(a), c.CNIVersion)
}

// resultOf is the agent's answer as a CNI result: the host's interface first, then the container's.
func resultOf(a *shell.CNIAnswer) *current.Result {
	one := 1
	r := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{{Name: a.HostInterface}, {Name: a.Ifname, Mac: a.MAC, Sandbox: a.Netns}},
	}
	for i, p := range a.IPs {
		ip := &current.IPConfig{Interface: &one, Address: net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
		if i < len(a.Gateways) {
			ip.Gateway = a.Gateways[i].AsSlice()
			_, anywhere, _ := net.ParseCIDR(map[bool]string{false: "0.0.0.0/0", true: "::/0"}[p.Addr().Is6()])
			r.Routes = append(r.Routes, &types.Route{Dst: *anywhere, GW: ip.Gateway})
		}
		r.IPs = append(r.IPs, ip)
	}
	return r
}

func check(args *skel.CmdArgs) error {
	c, call, err := prepare("CHECK", args)
	if err != nil {
		return err
	}
	if c.PrevResult == nil {
		return types.NewError(edge.CNIUnsupportedField, "prevResult is missing", "")
	}
	prev, err := current.NewResultFromResult(c.PrevResult)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "prevResult: "+err.Error(), "")
	}
	if call.Prev, err = answerOf(prev, args.IfName); err != nil {
		return err
	}
	_, err = send(c, call)
	return err
}

// answerOf reads what ADD answered from a result. Interfaces that other plugins added are passed over.
func answerOf(r *current.Result, ifname string) (*shell.CNIAnswer, error) {
	a := &shell.CNIAnswer{}
	at := -1
	for i, x := range r.Interfaces {
		switch {
		case x.Sandbox != "" && x.Name == ifname:
			a.Ifname, a.MAC, a.Netns, at = x.Name, x.Mac, x.Sandbox, i
		case x.Sandbox == "" && a.HostInterface == "":
			a.HostInterface = x.Name
		}
	}
	if at < 0 {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("prevResult has no interface %s in the container", ifname), "")
	}
	for _, ip := range r.IPs {
		if ip.Interface == nil || *ip.Interface != at {
			continue
		}
		p, err := prefixOf(ip.Address)
		if err != nil {
			return nil, types.NewError(types.ErrDecodingFailure, "prevResult: "+err.Error(), "")
		}
		a.IPs = append(a.IPs, p)
	}
	return a, nil
}
