// Package metrics is what the operator's monitoring reads: counters of calls and
// of what goes wrong, in Prometheus' text format. It is served on an address of
// its own and is no part of the contract. Nothing reads it back: money is counted
// in the ledger only.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
)

// Metrics counts. A nil one counts nothing.
type Metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	refusals *prometheus.CounterVec
	alarms   *prometheus.CounterVec
	mails    *prometheus.CounterVec
	waiting  prometheus.Gauge
}

// The outcomes of an admitted call, in addition to the ledger's settlements.
const (
	Failed    = "failed"    // the provider could not do it: 502, not billed
	Rejected  = "rejected"  // the provider refused the request: 400, not billed
	Pending   = "pending"   // the provider's record will give the charge
	Abandoned = "abandoned" // the client disconnected before the provider was called
)

// New returns the metrics of a node, including those of its prices and estimates, which are read at each scrape.
func New(prices *catalog.Source, drift *estimates.Calibration) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: counter("purser_calls_total", "Calls that were held for, by how they ended.", "provider", "model",
			"outcome"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "purser_call_seconds",
			Help:    "Time from the hold to the end of a call.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"provider", "model"}),
		errors: counter("purser_provider_errors_total",
			"Failures at a provider, by its HTTP status; none = no answer, cut = a stream that broke off.", "provider",
			"status"),
		refusals: counter("purser_refused_calls_total", "Calls that an app was answered an error for, by its code.",
			"code"),
		alarms: counter("purser_alarms_total", "What the operator must look at; the log says more.", "alarm",
			"subject"),
		mails: counter("purser_mails_total", "Attempts to send a mail, by how they ended.", "outcome"),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "purser_mails_pending",
			Help: "Mails that wait to be sent, on all nodes.",
		}),
	}
	m.registry.MustRegister(m.calls, m.seconds, m.errors, m.refusals, m.alarms, m.mails, m.waiting,
		sources{prices, drift},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Call counts a call that has ended.
func (m *Metrics) Call(provider, model, outcome string, took time.Duration) {
	if m == nil {
		return
	}
	m.calls.WithLabelValues(provider, model, outcome).Inc()
	m.seconds.WithLabelValues(provider, model).Observe(took.Seconds())
}

// ProviderError counts a failure at a provider; status 0 = it did not answer.
func (m *Metrics) ProviderError(provider string, status int) {
	text := "none"
	if status > 0 {
		text = strconv.Itoa(status)
	}
	m.providerError(provider, text)
}

// Cut counts a stream that the provider broke off.
func (m *Metrics) Cut(provider string) { m.providerError(provider, "cut") }

func (m *Metrics) providerError(provider, status string) {
	if m != nil {
		m.errors.WithLabelValues(provider, status).Inc()
	}
}

// Refused counts a call that an app was answered an error for.
func (m *Metrics) Refused(code string) {
	if m != nil {
		m.refusals.WithLabelValues(code).Inc()
	}
}

// Alarm counts what the operator must look at. Both texts are of few values: the
// subject is a provider or a model.
func (m *Metrics) Alarm(alarm, subject string) {
	if m != nil {
		m.alarms.WithLabelValues(alarm, subject).Inc()
	}
}

// Mail counts an attempt to send a mail.
func (m *Metrics) Mail(outcome string) {
	if m != nil {
		m.mails.WithLabelValues(outcome).Inc()
	}
}

// MailsPending tells how many mails wait.
func (m *Metrics) MailsPending(n int64) {
	if m != nil {
		m.waiting.Set(float64(n))
	}
}
