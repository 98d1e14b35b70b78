package openflow

import (
	"errors"
	"fmt"
	"strconv"
)

// Learn adds or refreshes a flow in a table when a packet meets it.
type Learn struct {
	Table          uint8
	Priority       uint16
	IdleTimeout    uint16 // seconds without a packet, 0: none
	HardTimeout    uint16 // seconds, 0: none
	FinIdleTimeout uint16 // seconds, taken once a FIN or RST was seen, 0: none
	FinHardTimeout uint16
	Cookie         uint64
	DeleteLearned  bool // the learned flows of the same cookie and table go with the last flow that learns them
	Specs          []LearnSpec
}

// LearnKind is what a LearnSpec makes of its source.
type LearnKind uint8

// The kinds.
const (
	LearnKindMatch  LearnKind = iota // the learned flow matches Dst with the source
	LearnKindLoad                    // the learned flow sets Dst to the source
	LearnKindOutput                  // the learned flow outputs to the port in the source
)

// LearnSpec is one part of a learned flow. The source is Src, or Value if Src has no field.
type LearnSpec struct {
	Kind  LearnKind
	Dst   Range
	Src   Range
	Value Value
}

// LearnMatch has the learned flow match the field with the value that the packet has in it.
func LearnMatch(f Field) LearnSpec { return LearnSpec{Dst: f.All(), Src: f.All()} }

// LearnMatchFrom has the learned flow match dst with what the packet has in src.
func LearnMatchFrom(dst, src Range) LearnSpec { return LearnSpec{Dst: dst, Src: src} }

// LearnMatchValue has the learned flow match dst with a number.
func LearnMatchValue(dst Range, n uint64) LearnSpec { return LearnSpec{Dst: dst, Value: Num(n)} }

// LearnLoad has the learned flow set dst to a number.
func LearnLoad(dst Range, n uint64) LearnSpec {
	return LearnSpec{Kind: LearnKindLoad, Dst: dst, Value: Num(n)}
}

// LearnLoadFrom has the learned flow set dst to what the packet has in src now.
func LearnLoadFrom(dst, src Range) LearnSpec {
	return LearnSpec{Kind: LearnKindLoad, Dst: dst, Src: src}
}

// LearnOutput has the learned flow output to the port that src holds now.
func LearnOutput(src Range) LearnSpec { return LearnSpec{Kind: LearnKindOutput, Src: src} }

func (s LearnSpec) appendText(b []byte) []byte {
	imm := s.Src.Field == FieldNone
	switch {
	case s.Kind == LearnKindOutput:
		return s.Src.appendText(append(b, "output:"...))
	case s.Kind == LearnKindLoad:
		b = append(b, "load:"...)
		if imm {
			b = appendHex(b, s.Value)
		} else {
			b = s.Src.appendText(b)
		}
		return s.Dst.appendText(append(b, "->"...))
	case !imm && s.Src == s.Dst:
		return s.Dst.appendText(b)
	case !imm:
		return s.Src.appendText(append(s.Dst.appendText(b), '='))
	case s.Dst == s.Dst.Field.All():
		b = append(append(b, fields[s.Dst.Field].name...), '=')
		return appendValue(b, s.Dst.Field, s.Value, Ones(s.Dst.Field.Bits()))
	}
	return appendHex(append(s.Dst.appendText(b), '='), s.Value)
}

func (a Learn) appendText(b []byte) []byte {
	num := func(name string, n uint64) {
		if n != 0 {
			b = strconv.AppendUint(append(b, name...), n, 10)
		}
	}
	b = strconv.AppendUint(append(b, "learn(table="...), uint64(a.Table), 10)
	num(",idle_timeout=", uint64(a.IdleTimeout))
	num(",hard_timeout=", uint64(a.HardTimeout))
	num(",fin_idle_timeout=", uint64(a.FinIdleTimeout))
	num(",fin_hard_timeout=", uint64(a.FinHardTimeout))
	if a.Priority != DefaultPriority {
		b = strconv.AppendUint(append(b, ",priority="...), uint64(a.Priority), 10)
	}
	if a.DeleteLearned {
		b = append(b, ",delete_learned"...)
	}
	if a.Cookie != 0 {
		b = appendHex(append(b, ",cookie="...), Num(a.Cookie))
	}
	for _, s := range a.Specs {
		b = s.appendText(append(b, ','))
	}
	return append(b, ')')
}

// check follows OVS: the source of a spec needs its prerequisites in the flow that learns, the
// destination needs them in the match that was specified before it.
func (a Learn) check(c *context) error {
	if a.Table >= 254 {
		return fmt.Errorf("learn: table %d: want 0 to 253", a.Table)
	}
	learned := context{icmp: -1, code: -1}
	for _, s := range a.Specs {
		if err := s.check(c, &learned); err != nil {
			return fmt.Errorf("learn: %w", err)
		}
	}
	return nil
}

func (s LearnSpec) check(c, learned *context) error {
	text := func() string { return string(s.appendText(nil)) }
	imm := s.Src.Field == FieldNone
	if s.Kind > LearnKindOutput {
		return errors.New("no such kind of specification")
	}
	if !imm {
		if err := c.checkSource(s.Src); err != nil {
			return err
		}
	}
	if s.Kind == LearnKindOutput {
		if imm {
			return errors.New("output: no source is given")
		}
		return nil
	}
	if err := s.Dst.check(); err != nil {
		return err
	}
	if !imm && s.Src.Bits() != s.Dst.Bits() {
		return fmt.Errorf("%s: the source has %d bits, the destination %d", text(), s.Src.Bits(), s.Dst.Bits())
	}
	if imm && s.Value.Len() > int(s.Dst.Bits()) {
		return fmt.Errorf("%s: the value does not fit into %d bits", text(), s.Dst.Bits())
	}
	if err := learned.require(fields[s.Dst.Field].pre, text()); err != nil {
		return err
	}
	if s.Kind == LearnKindLoad {
		switch info := &fields[s.Dst.Field]; {
		case info.fixed:
			return fmt.Errorf("%s: %s is read-only", text(), s.Dst.Field)
		case info.ctField:
			return fmt.Errorf("%s: connection tracking fields are set inside ct(commit,exec(…)) only", text())
		}
		return nil
	}
	if imm && s.Dst == s.Dst.Field.All() {
		switch s.Dst.Field {
		case EthType:
			learned.eth = uint16(s.Value.Lo)
		case IPProto:
			learned.proto = uint8(s.Value.Lo)
		case ICMPv6Type:
			learned.icmp = int(s.Value.Lo)
		case ICMPv6Code:
			learned.code = int(s.Value.Lo)
		case CTState:
			learned.ctState = uint32(s.Value.Lo)
		}
	}
	return nil
}

func (a Learn) wireLen() int {
	n := 32
	for _, s := range a.Specs {
		n += 2
		if s.Src.Field == FieldNone {
			n += int(s.Dst.Bits()+15) / 16 * 2
		} else {
			n += 6
		}
		if s.Kind != LearnKindOutput {
			n += 6
		}
	}
	return pad8(n)
}
