package dbtest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A test run that is killed leaves no server behind.
func TestClusterEndsWithItsProcess(t *testing.T) {
	if os.Getenv("DBTEST_START_AND_WAIT") != "" {
		c, err := Start(false)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(c.URL)
		select {} // until killed
	}
	t.Parallel()
	child := exec.Command(os.Args[0], "-test.run=^TestClusterEndsWithItsProcess$")
	child.Env = append(os.Environ(), "DBTEST_START_AND_WAIT=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, strings.TrimSpace(url))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if _, err := conn.Exec(ctx, `SELECT pg_sleep(3600)`); err == nil || ctx.Err() != nil {
		t.Errorf("the server lives on: %v", err)
	}
}
