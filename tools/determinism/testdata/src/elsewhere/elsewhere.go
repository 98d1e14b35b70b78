package elsewhere

import "time"

func Now() time.Time { return time.Now() }
