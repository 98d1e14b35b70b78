package host

import (
	"fmt"

	"towtank/datapath"
)

// Parse reads the canonical text of a host object of the kind.
func Parse(kind datapath.Kind, text string) (datapath.Object, error) {
	switch kind {
	case datapath.KindLink:
		return object(ParseLink(text))
	case datapath.KindAddress:
		return object(ParseAddress(text))
	case datapath.KindNeighbour:
		return object(ParseNeighbour(text))
	case datapath.KindRoute:
		return object(ParseRoute(text))
	case datapath.KindRule:
		return object(ParseRule(text))
	case datapath.KindSysctl:
		return object(ParseSysctl(text))
	case datapath.KindIPSet:
		return object(ParseIPSet(text))
	case datapath.KindIPSetEntry:
		return object(ParseIPSetEntry(text))
	case datapath.KindIPTables:
		return object(ParseIPTables(text))
	case datapath.KindHealth:
		return object(ParseHealth(text))
	}
	return nil, fmt.Errorf("%q: kind %s is not a host object", text, kind)
}

// object returns a nil interface, not an empty object, with an error.
func object[T datapath.Object](o T, err error) (datapath.Object, error) {
	if err != nil {
		return nil, err
	}
	return o, nil
}
