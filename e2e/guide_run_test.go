package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A guideRun is one run of a program.
type guideRun struct {
	block   *guideBlock
	command *exec.Cmd
	user    *guideUser
	timeout time.Duration
	trigger func(context.Context) error // nil = none

	mu      sync.Mutex
	out     bytes.Buffer
	seen    int           // bytes of out whose lines were read
	stopped chan struct{} // closed when the output has the block's stop text
	wait    sync.WaitGroup
	err     error // of what the person or the trigger did
}

// do runs the program to its end, or to its stop text.
func (r *guideRun) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	r.stopped = make(chan struct{})
	r.command.Stdout, r.command.Stderr = r, r
	r.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its children end with it
	r.command.WaitDelay = time.Second
	if err := r.command.Start(); err != nil {
		return err
	}
	kill := func() { _ = syscall.Kill(-r.command.Process.Pid, syscall.SIGKILL) } // it may have ended
	ended := make(chan error, 1)
	go func() { ended <- r.command.Wait() }()
	defer r.wait.Wait()
	defer kill()
	if r.trigger != nil {
		r.wait.Go(func() { r.fail(r.trigger(ctx)) })
	}
	var err error
	select {
	case err = <-ended:
		if r.block.stop != "" && !r.hasStopped() {
			err = errors.Join(err, fmt.Errorf("it ended without the output %q", r.block.stop))
		}
	case <-r.stopped:
		kill()
		<-ended
	case <-ctx.Done():
		kill()
		<-ended
		err = fmt.Errorf("it runs longer than %v", r.timeout)
	}
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() == 22 && r.block.language == "sh" {
		err = fmt.Errorf("%w (curl got an error answer)", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err = errors.Join(err, r.err); err == nil && !strings.Contains(r.out.String(), r.block.expect) {
		err = fmt.Errorf("its output does not have %q", r.block.expect)
	}
	return err
}

func (r *guideRun) hasStopped() bool {
	select {
	case <-r.stopped:
		return true
	default:
		return false
	}
}

// fail keeps an error of what happens while the program runs.
func (r *guideRun) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
}

// Write reads the output: a line that asks to open a URL is what the person does.
func (r *guideRun) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Write(p)
	for {
		rest := r.out.Bytes()[r.seen:]
		n := bytes.IndexByte(rest, '\n')
		if n < 0 {
			break
		}
		r.seen += n + 1
		if address := findOpenURL(string(rest[:n])); address != "" {
			r.wait.Go(func() {
				if err := r.user.open(address); err != nil {
					r.fail(fmt.Errorf("the person at %s: %w", address, err))
				}
			})
		}
	}
	if r.block.stop != "" && !r.hasStopped() && strings.Contains(r.out.String(), r.block.stop) {
		close(r.stopped)
	}
	return len(p), nil
}

// output returns what the program has printed.
func (r *guideRun) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}
