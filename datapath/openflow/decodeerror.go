package openflow

import (
	"fmt"
	"slices"
)

// Error is an error message of the switch. The header's xid is that of the message that it refused.
type Error struct {
	Type, Code uint16
	Data       []byte // the beginning of the refused message
}

// errorNames has the errors that the messages of this package can meet (OpenFlow 1.5, 7.5.4).
var errorNames = map[[2]uint16]string{
	{0, 0}: "OFPHFC_INCOMPATIBLE", {0, 1}: "OFPHFC_EPERM",
	{1, 0}: "OFPBRC_BAD_VERSION", {1, 1}: "OFPBRC_BAD_TYPE", {1, 2}: "OFPBRC_BAD_MULTIPART", {1, 3}: "OFPBRC_BAD_EXPERIMENTER", {1, 4}: "OFPBRC_BAD_EXP_TYPE",
	{1, 5}: "OFPBRC_EPERM", {1, 6}: "OFPBRC_BAD_LEN", {1, 9}: "OFPBRC_BAD_TABLE_ID", {1, 11}: "OFPBRC_BAD_PORT", {1, 12}: "OFPBRC_BAD_PACKET",
	{2, 0}: "OFPBAC_BAD_TYPE", {2, 1}: "OFPBAC_BAD_LEN", {2, 2}: "OFPBAC_BAD_EXPERIMENTER", {2, 3}: "OFPBAC_BAD_EXP_TYPE", {2, 4}: "OFPBAC_BAD_OUT_PORT",
	{2, 5}: "OFPBAC_BAD_ARGUMENT", {2, 6}: "OFPBAC_EPERM", {2, 7}: "OFPBAC_TOO_MANY", {2, 9}: "OFPBAC_BAD_OUT_GROUP", {2, 10}: "OFPBAC_MATCH_INCONSISTENT",
	{2, 11}: "OFPBAC_UNSUPPORTED_ORDER", {2, 12}: "OFPBAC_BAD_TAG", {2, 13}: "OFPBAC_BAD_SET_TYPE", {2, 14}: "OFPBAC_BAD_SET_LEN", {2, 15}: "OFPBAC_BAD_SET_ARGUMENT",
	{2, 16}: "OFPBAC_BAD_SET_MASK", {2, 17}: "OFPBAC_BAD_METER",
	{3, 0}: "OFPBIC_UNKNOWN_INST", {3, 1}: "OFPBIC_UNSUP_INST", {3, 2}: "OFPBIC_BAD_TABLE_ID", {3, 7}: "OFPBIC_BAD_LEN", {3, 8}: "OFPBIC_EPERM", {3, 9}: "OFPBIC_DUP_INST",
	{4, 0}: "OFPBMC_BAD_TYPE", {4, 1}: "OFPBMC_BAD_LEN", {4, 6}: "OFPBMC_BAD_FIELD", {4, 7}: "OFPBMC_BAD_VALUE", {4, 8}: "OFPBMC_BAD_MASK",
	{4, 9}: "OFPBMC_BAD_PREREQ", {4, 10}: "OFPBMC_DUP_FIELD",
	{5, 0}: "OFPFMFC_UNKNOWN", {5, 1}: "OFPFMFC_TABLE_FULL", {5, 2}: "OFPFMFC_BAD_TABLE_ID", {5, 3}: "OFPFMFC_OVERLAP", {5, 4}: "OFPFMFC_EPERM", {5, 7}: "OFPFMFC_BAD_FLAGS",
	{6, 0}: "OFPGMFC_GROUP_EXISTS", {6, 1}: "OFPGMFC_INVALID_GROUP", {6, 3}: "OFPGMFC_OUT_OF_GROUPS", {6, 4}: "OFPGMFC_OUT_OF_BUCKETS", {6, 6}: "OFPGMFC_LOOP",
	{6, 8}: "OFPGMFC_UNKNOWN_GROUP", {6, 9}: "OFPGMFC_CHAINED_GROUP", {6, 10}: "OFPGMFC_BAD_TYPE", {6, 12}: "OFPGMFC_BAD_BUCKET", {6, 15}: "OFPGMFC_BUCKET_EXISTS",
	{12, 0}: "OFPMMFC_UNKNOWN", {12, 1}: "OFPMMFC_METER_EXISTS", {12, 2}: "OFPMMFC_INVALID_METER", {12, 3}: "OFPMMFC_UNKNOWN_METER", {12, 5}: "OFPMMFC_BAD_FLAGS",
	{12, 6}: "OFPMMFC_BAD_RATE", {12, 7}: "OFPMMFC_BAD_BURST", {12, 10}: "OFPMMFC_OUT_OF_METERS", {12, 11}: "OFPMMFC_OUT_OF_BANDS",
	{17, 0}: "OFPBFC_UNKNOWN", {17, 1}: "OFPBFC_EPERM", {17, 2}: "OFPBFC_BAD_ID", {17, 3}: "OFPBFC_BUNDLE_EXIST", {17, 4}: "OFPBFC_BUNDLE_CLOSED",
	{17, 8}: "OFPBFC_MSG_UNSUP", {17, 10}: "OFPBFC_MSG_TOO_MANY", {17, 11}: "OFPBFC_MSG_FAILED", {17, 12}: "OFPBFC_TIMEOUT",
}

// Error returns the name of the error in the specification, or its numbers.
func (e *Error) Error() string {
	if n, ok := errorNames[[2]uint16{e.Type, e.Code}]; ok {
		return n
	}
	return fmt.Sprintf("OpenFlow error type %d code %d", e.Type, e.Code)
}

// BundleFailed reports whether the error says that another message of the bundle was refused.
func (e *Error) BundleFailed() bool { return e.Type == 17 && e.Code == 11 }

func (r *reader) errorMessage() Message {
	e := &Error{Type: r.u16(), Code: r.u16()}
	e.Data = slices.Clone(r.b)
	return e
}
