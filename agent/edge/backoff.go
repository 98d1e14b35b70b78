package edge

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Back-off of writes to the API. A server that gives no answer says nothing of the object: what waits is written soon
// after it is back.
const (
	backoffMin      = 5 * time.Second
	backoffMax      = 300 * time.Second
	backoffNoAnswer = 20 * time.Second
)

// Backoff returns how long a write that failed with err waits until it is tried again, if it waited for last before: 5 s
// at first, then twice as long each time, up to 300 s; 20 s if the API server gave no answer.
func Backoff(last time.Duration, err error) time.Duration {
	most := backoffMax
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonUnknown, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonServiceUnavailable:
		most = backoffNoAnswer
	}
	return min(max(2*last, backoffMin), most)
}
