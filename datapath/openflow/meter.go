package openflow

import (
	"errors"
	"fmt"
	"strconv"

	"towtank/datapath"
)

// Meter is an OpenFlow meter with one band that drops what is over the rate. It is comparable.
type Meter struct {
	ID        uint32
	PktPS     bool   // rate in packets a second; else kilobits a second
	Burst     bool   // BurstSize is given; else OVS uses one second's worth
	Rate      uint32 // packets/s or kbit/s, at least 1
	BurstSize uint32 // packets or kilobits
}

// NewMeter returns the meter if OVS would take it.
func NewMeter(m Meter) (*Meter, error) {
	if err := checkMeterID(m.ID); err != nil {
		return nil, err
	}
	if m.Rate == 0 {
		return nil, fmt.Errorf("meter %d: the band must have a rate of at least 1", m.ID)
	}
	if m.BurstSize != 0 && !m.Burst {
		return nil, fmt.Errorf("meter %d: burst_size needs the flag burst", m.ID)
	}
	if m.Burst && m.BurstSize == 0 {
		return nil, errors.New("meter " + strconv.FormatUint(uint64(m.ID), 10) + ": the flag burst needs a burst_size")
	}
	return &m, nil
}

// Kind returns datapath.KindMeter.
func (*Meter) Kind() datapath.Kind { return datapath.KindMeter }

// Key identifies the meter as "meter=N".
func (m *Meter) Key() datapath.Key {
	return datapath.Key{Kind: datapath.KindMeter, Name: "meter=" + strconv.FormatUint(uint64(m.ID), 10)}
}

// String returns the text as ovs-ofctl dump-meters prints it, on one line.
func (m *Meter) String() string {
	b := strconv.AppendUint([]byte("meter="), uint64(m.ID), 10)
	if m.PktPS {
		b = append(b, " pktps"...)
	} else {
		b = append(b, " kbps"...)
	}
	if m.Burst {
		b = append(b, " burst"...)
	}
	b = strconv.AppendUint(append(b, " bands=type=drop rate="...), uint64(m.Rate), 10)
	if m.Burst {
		b = strconv.AppendUint(append(b, " burst_size="...), uint64(m.BurstSize), 10)
	}
	return string(b)
}
