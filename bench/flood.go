package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"
)

// floodSpec is one measurement of apps that call a node with small bounds.
type floodSpec struct {
	slowSpec
	Apps     []floodApp    `json:"apps"`
	Settle   time.Duration `json:"settle"`   // until the measured time begins
	Duration time.Duration `json:"duration"` // of the measured time, in which calls begin
	Share    int           `json:"share"`    // calls in flight that count as an app's share
}

// A floodApp is an app with clients, each of which makes one call after another.
type floodApp struct {
	Name    string        `json:"name"`
	Tokens  []string      `json:"tokens"`
	Clients int           `json:"clients"`
	Early   int           `json:"early"` // clients that begin before the others; 0 = all
	Begin   time.Duration `json:"begin"`
	Spread  time.Duration `json:"spread"` // over which the early clients begin, and then the others
	Pause   time.Duration `json:"pause"`  // between the calls of a client, on average
	Retry   time.Duration `json:"retry"`  // after a refusal; 0 = as Retry-After says
}

// floodResult is what the clients of an app found. Times are microseconds. Calls count if they began in the measured
// time, chunks if they arrived in it.
type floodResult struct {
	App      string `json:"app"`
	Clients  int    `json:"clients"`
	Answered int64  `json:"answered"` // in the whole run
	Admitted int64  `json:"admitted"`
	Refused  int64  `json:"refused"`

	FirstAdmitted int64   `json:"first_calls_admitted"` // clients whose first call was admitted
	InFlight      float64 `json:"in_flight"`            // admitted calls, on average over the second half
	ShareUS       int64   `json:"share_us"`             // from its begin until it had its share; -1 = never

	RefusalP50US int64  `json:"refusal_p50_us"` // from the request to the end of the 503
	RefusalP99US int64  `json:"refusal_p99_us"`
	FirstP50US   int64  `json:"first_chunk_p50_us"` // since the request
	FirstP99US   int64  `json:"first_chunk_p99_us"`
	LagP50US     int64  `json:"lag_p50_us"`
	LagP99US     int64  `json:"lag_p99_us"`
	Failed       int64  `json:"failed"` // neither a whole stream nor a refusal as it should be
	FirstFault   string `json:"first_fault,omitempty"`
}

// beginOf returns when client n begins. The early ones may all be inside the bound: they begin as slowly as those of a
// cell that is, so that their calls do not end in bursts.
func (a floodApp) beginOf(n int) time.Duration {
	if a.Early == 0 {
		return a.Begin + a.Spread*time.Duration(n)/time.Duration(a.Clients)
	}
	if n < a.Early {
		return a.Begin + a.Spread*time.Duration(n)/time.Duration(a.Early)
	}
	return a.Begin + a.Spread + a.Spread*time.Duration(n-a.Early)/time.Duration(a.Clients-a.Early)
}

// A floodClient makes one call after another.
type floodClient struct {
	floodApp
	spec      floodSpec
	target    *url.URL
	transport http.RoundTripper
	rng       *rand.Rand

	calls []floodCall
	lags  []int64 // of chunks in the measured time
	fault error
	faults, answered,
	from, until int64
}

// A floodCall is one call that had no fault, from start to end.
type floodCall struct {
	start, end, first int64
	admitted          bool
}

// runApps lets the clients of all apps call.
func (s floodSpec) runApps() ([]floodResult, error) {
	target, err := url.Parse(s.URL + "/v1/ai/" + models[s.Cell])
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1 << 16, ReadBufferSize: 2 << 10}
	defer transport.CloseIdleConnections()
	begin := time.Now()
	from := begin.Add(s.Settle)
	until := from.Add(s.Duration)
	var group sync.WaitGroup
	apps := make([][]*floodClient, len(s.Apps))
	for i, app := range s.Apps {
		for n := range app.Clients {
			c := &floodClient{
				floodApp:  app,
				spec:      s,
				target:    target,
				transport: transport,
				rng:       rand.New(rand.NewPCG(uint64(i<<20+n), uint64(begin.UnixNano()))),
				from:      from.UnixMicro(),
				until:     until.UnixMicro(),
			}
			apps[i] = append(apps[i], c)
			group.Go(func() {
				time.Sleep(time.Until(begin.Add(app.beginOf(n))))
				c.callUntil(until)
			})
		}
	}
	group.Wait()
	results := make([]floodResult, len(s.Apps))
	for i, app := range s.Apps {
		results[i] = s.sumApp(app, apps[i], begin.Add(app.Begin).UnixMicro())
	}
	return results, nil
}

// callUntil calls until the time, and waits for the end of the last call.
func (c *floodClient) callUntil(until time.Time) {
	for time.Now().Before(until) {
		wait, err := c.makeCall()
		if err != nil {
			if c.faults++; c.fault == nil {
				c.fault = err
			}
			wait = 100 * time.Millisecond // do not flood a broken gateway
		}
		time.Sleep(min(wait, time.Until(until)))
	}
}

// makeCall makes one call, and returns the time until the next.
func (c *floodClient) makeCall() (wait time.Duration, err error) {
	start := time.Now()
	resp, err := c.transport.RoundTrip(c.spec.newRequest(c.target, c.Tokens, c.rng))
	if err != nil {
		return 0, err
	}
	call := floodCall{start: start.UnixMicro()}
	if resp.StatusCode == http.StatusServiceUnavailable {
		wait, err = readBusy(resp)
		if c.Retry > 0 {
			wait = c.Retry
		}
		wait += time.Duration(c.rng.Int64N(int64(wait)/2 + 1)) // clients that were refused together come apart
	} else {
		var stream slowClient
		err = stream.readStream(c.spec.slowSpec, resp, start)
		call.admitted, call.first = true, stream.first
		for i, at := range stream.at {
			if at >= c.from && at < c.until {
				c.lags = append(c.lags, stream.lags[i])
			}
		}
		wait = time.Duration(c.rng.Int64N(int64(2*c.Pause) + 1))
	}
	if err != nil {
		return 0, err
	}
	if call.end = time.Now().UnixMicro(); call.admitted {
		c.answered++
	}
	c.calls = append(c.calls, call)
	return wait, nil
}

// readBusy checks a refusal, and returns when the client may call again.
func readBusy(resp *http.Response) (time.Duration, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("%w: %w after %d bytes of a 503", errTruncated, err, len(body))
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds < 1 || !bytes.Contains(body, []byte(`"code":"unavailable"`)) {
		return 0, fmt.Errorf("%w: a 503 with Retry-After %q: %.200s", errWrong, resp.Header.Get("Retry-After"), body)
	}
	return time.Duration(seconds) * time.Second, nil
}

// sumApp computes the figures of an app that began at begin.
func (s floodSpec) sumApp(app floodApp, clients []*floodClient, begin int64) floodResult {
	r := floodResult{App: app.Name, Clients: app.Clients}
	var refusals, first, lags []int64
	var all []floodCall
	var faults []error
	for _, c := range clients {
		r.Failed += c.faults
		r.Answered += c.answered
		lags = append(lags, c.lags...)
		faults = append(faults, c.fault)
		if len(c.calls) > 0 && c.calls[0].admitted {
			r.FirstAdmitted++
		}
		for _, call := range c.calls {
			inside := call.start >= c.from && call.start < c.until
			switch {
			case call.admitted && inside:
				first = append(first, call.first)
			case inside:
				refusals = append(refusals, call.end-call.start)
			}
			if call.admitted {
				all = append(all, call)
			}
		}
	}
	if err := errors.Join(faults...); err != nil {
		r.FirstFault = fmt.Sprintf("%.600s", err)
	}
	r.Admitted, r.Refused = int64(len(first)), int64(len(refusals))
	r.RefusalP50US, r.RefusalP99US = percentile(refusals, 50), percentile(refusals, 99)
	r.FirstP50US, r.FirstP99US = percentile(first, 50), percentile(first, 99)
	r.LagP50US, r.LagP99US = percentile(lags, 50), percentile(lags, 99)
	if len(clients) > 0 {
		half := (clients[0].from + clients[0].until) / 2
		r.InFlight = meanInFlight(all, half, clients[0].until)
	}
	if r.ShareUS = timeOfShare(all, s.Share); r.ShareUS >= 0 {
		r.ShareUS -= begin
	}
	return r
}

// meanInFlight returns how many calls were in flight between two times, on average.
func meanInFlight(calls []floodCall, from, until int64) float64 {
	var sum int64
	for _, c := range calls {
		sum += max(0, min(c.end, until)-max(c.start, from))
	}
	return float64(sum) / float64(max(until-from, 1))
}

// timeOfShare returns the first time at which so many calls were in flight; -1 = never.
func timeOfShare(calls []floodCall, share int) int64 {
	starts, ends := make([]int64, 0, len(calls)), make([]int64, 0, len(calls))
	for _, c := range calls {
		starts, ends = append(starts, c.start), append(ends, c.end)
	}
	slices.Sort(starts)
	slices.Sort(ends)
	ended := 0
	for i, at := range starts {
		for ended < len(ends) && ends[ended] <= at {
			ended++
		}
		if i+1-ended >= share {
			return at
		}
	}
	return -1
}
