package checked

import "time"

func helper() time.Time { return time.Now() }
