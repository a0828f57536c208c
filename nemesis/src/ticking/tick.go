// Says its own monotonic time, in nanoseconds, before and after each wait of that many milliseconds.
// The waits take turns: a sleep, a timer channel, a context's deadline.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	ms, _ := strconv.Atoi(os.Args[1])
	length := time.Duration(ms) * time.Millisecond
	origin := time.Now()
	for turn := 0; ; turn++ {
		fmt.Println(time.Since(origin).Nanoseconds())
		switch turn % 3 {
		case 0:
			time.Sleep(length)
		case 1:
			<-time.After(length)
		case 2:
			ctx, cancel := context.WithTimeout(context.Background(), length)
			<-ctx.Done()
			cancel()
		}
	}
}
