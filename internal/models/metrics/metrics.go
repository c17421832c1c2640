// Package metrics counts calls and failures for the operator's monitoring, in the text format of Prometheus. It is
// served on a separate address and is not part of the contract. No rule depends on a metric; money is counted only in
// the ledger.
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
	first    *prometheus.HistogramVec
	tokens   *prometheus.CounterVec
	empty    *prometheus.CounterVec
	emptyMC  *prometheus.CounterVec
	waivedMC *prometheus.CounterVec

	unbilledMC *prometheus.CounterVec
	errors     *prometheus.CounterVec
	refusals   *prometheus.CounterVec
	alarms     *prometheus.CounterVec
	raised     prometheus.Counter
	mails      *prometheus.CounterVec
	jobs       *prometheus.CounterVec
	payments   *prometheus.CounterVec
	waiting    prometheus.Gauge

	health *prometheus.Registry // the counters of which Tallies is made

	unmeteredSeconds *prometheus.CounterVec
	unmeteredTokens  *prometheus.CounterVec

	openHolds, oldestHold, deliveries, oldestEvent prometheus.Gauge
	findings, verified, differences                prometheus.Gauge

	stripeAge, jobSuccesses, jobAges, newestBackup *prometheus.GaugeVec
}

// The outcomes of an admitted call, in addition to the ledger's settlements.
const (
	Failed    = "failed"    // the provider failed: 502, not billed
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
		calls: counter("purser_calls_total", "Calls that were held, by outcome.", "provider", "model",
			"outcome"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "purser_call_seconds",
			Help:    "Time from the hold to the end of a call.",
			Buckets: limitSeconds(),
		}, []string{"provider", "model"}),
		first: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "purser_first_byte_seconds",
			Help:    "Time from the hold to the first part of a stream.",
			Buckets: limitSeconds(),
		}, []string{"provider", "model"}),
		tokens: counter("purser_tokens_total", "Tokens of settled calls, by direction: input or output.", "provider",
			"model", "direction"),
		empty: counter("purser_empty_answers_total",
			"Billed calls that the model ended by itself without text, refusal, tool call or reasoning.", "provider",
			"model"),
		emptyMC: counter("purser_empty_answer_charges_mc_total",
			"What users were charged for empty answers, in micro-cents.", "provider", "model"),
		waivedMC: counter("purser_empty_answers_waived_mc_total",
			"Provider cost of empty answers that were free, in micro-cents.", "provider", "model"),
		unbilledMC: counter("purser_unbilled_attempts_mc_total",
			"What attempts that billed nobody may have cost at providers, in micro-cents.", "model"),
		errors: counter("purser_provider_errors_total",
			"Failures at a provider, by its HTTP status; none = no answer, cut = a stream that broke off.", "provider",
			"status"),
		refusals: counter("purser_refused_calls_total", "Calls that were answered with an error, by its code.",
			"code"),
		alarms: counter("purser_alarms_total", "Alarms for the operator; the log has the details.", "alarm",
			"subject"),
		raised: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "purser_alarms_raised_total",
			Help: "All alarms. It begins at 0, so that its increase shows the first one, too.",
		}),
		mails:    counter("purser_mails_total", "Attempts to send an email, by outcome.", "outcome"),
		jobs:     counter("purser_jobs_failed_total", "Runs of background jobs that failed, by job.", "task"),
		payments: counter("purser_payment_requests_total", "Requests to Stripe, by outcome: ok or failed.", "outcome"),
		unmeteredSeconds: counter("purser_voice_unmetered_seconds_total",
			"Time in which calls that had a sideband had none.", "model"),
		unmeteredTokens: counter("purser_voice_unmetered_audio_tokens_total",
			"Audio that the context of calls has gained without a bill, by the next reply's usage.", "model"),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "purser_mails_pending",
			Help: "Emails that wait to be sent, on all nodes.",
		}),
		openHolds: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "purser_open_holds",
			Help: "Open holds in the database, of all nodes.",
		}),
		oldestHold: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "purser_oldest_hold_seconds",
			Help: "Age of the oldest open hold, without those of voice sessions; 0 = there is none.",
		}),
		oldestEvent: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "purser_oldest_new_event_seconds",
			Help: "Age of the oldest event of the database that is in no event log and has no deliveries yet.",
		}),
		deliveries: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "purser_deliveries_waiting",
			Help: "Deliveries to enabled endpoints that wait to be sent or sent again, on all nodes.",
		}),
	}
	m.findings = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "purser_ledger_findings",
		Help: "Findings of the last verification of the ledger that has read it whole, of all nodes.",
	})
	m.verified = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "purser_ledger_verified_timestamp_seconds",
		Help: "When the last verification of the ledger ended that has read it whole, as Unix time; 0 = none has.",
	})
	m.registry.MustRegister(m.findings, m.verified)
	m.jobSuccesses = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "purser_job_last_success_timestamp_seconds",
		Help: "When the last run of a background job that succeeded ended, as Unix time; the node's start before it.",
	}, []string{"task"})
	m.jobAges = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "purser_job_max_age_seconds",
		Help: "How old the last success of a background job may be: its interval, twice, and the longest run.",
	}, []string{"task"})
	m.registry.MustRegister(m.jobSuccesses, m.jobAges)
	m.newestBackup = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "purser_newest_backup_timestamp_seconds",
		Help: "Time at which the newest backup of this node's folder was due; 0 = there is none.",
	}, nil)
	m.differences = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "purser_nodes_differ",
		Help: "Settings that nodes of the database must have alike, and do not.",
	})
	m.stripeAge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "purser_stripe_oldest_seconds",
		Help: "Age of the oldest that waits for us or whose outcome is unknown, and of what Stripe calls pending.",
	}, []string{"what"})
	m.registry.MustRegister(m.stripeAge)
	m.registry.MustRegister(m.openHolds, m.oldestHold, m.deliveries, m.oldestEvent, m.newestBackup,
		m.differences)
	m.health = prometheus.NewRegistry()
	m.health.MustRegister(m.calls, m.seconds, m.errors, m.mails, m.payments)
	m.registry.MustRegister(m.first, m.tokens, m.empty, m.emptyMC, m.waivedMC, m.unbilledMC)
	m.registry.MustRegister(m.calls, m.seconds, m.errors, m.refusals, m.alarms, m.raised, m.mails, m.jobs, m.payments,
		m.waiting, m.unmeteredSeconds, m.unmeteredTokens, sources{prices, drift},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// CountCall counts a call that has ended.
func (m *Metrics) CountCall(provider, model, outcome string, took time.Duration) {
	if m == nil {
		return
	}
	m.calls.WithLabelValues(provider, model, outcome).Inc()
	m.seconds.WithLabelValues(provider, model).Observe(took.Seconds())
}

// CountFirstByte counts the time to the first part of a stream.
func (m *Metrics) CountFirstByte(provider, model string, took time.Duration) {
	if m != nil {
		m.first.WithLabelValues(provider, model).Observe(took.Seconds())
	}
}

// CountTokens counts the tokens of a settled call. No charge is made of them.
func (m *Metrics) CountTokens(provider, model string, input, output int64) {
	if m != nil {
		m.tokens.WithLabelValues(provider, model, "input").Add(float64(input))
		m.tokens.WithLabelValues(provider, model, "output").Add(float64(output))
	}
}

// CountEmptyAnswer counts a billed call whose answer is empty: what its user was charged, or, if it was free, what the
// service paid for it.
func (m *Metrics) CountEmptyAnswer(provider, model string, chargedMC, waivedMC int64) {
	if m != nil {
		m.empty.WithLabelValues(provider, model).Inc()
		m.emptyMC.WithLabelValues(provider, model).Add(float64(chargedMC))
		m.waivedMC.WithLabelValues(provider, model).Add(float64(waivedMC))
	}
}

// CountUnbilled counts what an attempt has cost that bills nobody.
func (m *Metrics) CountUnbilled(model string, costMC int64) {
	if m != nil && costMC > 0 {
		m.unbilledMC.WithLabelValues(model).Add(float64(costMC))
	}
}

// Gatherer returns all metrics, for exporters of other formats.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// CountProviderError counts a failure at a provider. Status 0 means that it did not answer.
func (m *Metrics) CountProviderError(provider string, status int) {
	text := "none"
	if status > 0 {
		text = strconv.Itoa(status)
	}
	m.countProviderError(provider, text)
}

// CountCutStream counts a stream that the provider broke off.
func (m *Metrics) CountCutStream(provider string) { m.countProviderError(provider, "cut") }

func (m *Metrics) countProviderError(provider, status string) {
	if m != nil {
		m.errors.WithLabelValues(provider, status).Inc()
	}
}

// CountRefusal counts a call that was answered with an error.
func (m *Metrics) CountRefusal(code string) {
	if m != nil {
		m.refusals.WithLabelValues(code).Inc()
	}
}

// ExpectProvider begins the counters of a provider's failures at 0, so that their increase shows the first one, too.
func (m *Metrics) ExpectProvider(provider string) {
	for _, status := range []string{"401", "403", "429", "none", "cut"} {
		m.errors.WithLabelValues(provider, status)
	}
}

// RaiseAlarm counts an alarm for the operator. Both arguments must have few distinct values,
// because each pair is a time series.
func (m *Metrics) RaiseAlarm(alarm, subject string) {
	if m != nil {
		m.alarms.WithLabelValues(alarm, subject).Inc()
		m.raised.Inc()
	}
}

// SetStripeAge sets the age of the oldest of a kind of what is not final at Stripe.
func (m *Metrics) SetStripeAge(what string, age time.Duration) {
	if m != nil {
		m.stripeAge.WithLabelValues(what).Set(age.Seconds())
	}
}

// SetNewestBackup sets the time of the newest backup, of a node that writes some; 1970 = there is none.
func (m *Metrics) SetNewestBackup(at time.Time) {
	if m != nil {
		m.newestBackup.WithLabelValues().Set(float64(at.Unix()))
	}
}

// SetDifferences sets how many settings nodes must have alike, and do not.
func (m *Metrics) SetDifferences(n int) {
	if m != nil {
		m.differences.Set(float64(n))
	}
}

// CountUnmeteredSpeech counts speech of a voice call that is in no bill.
func (m *Metrics) CountUnmeteredSpeech(model string, gap time.Duration, audioTokens int64) {
	if m != nil {
		m.unmeteredSeconds.WithLabelValues(model).Add(gap.Seconds())
		m.unmeteredTokens.WithLabelValues(model).Add(float64(audioTokens))
	}
}

// CountMail counts an attempt to send an email.
func (m *Metrics) CountMail(outcome string) {
	if m != nil {
		m.mails.WithLabelValues(outcome).Inc()
	}
}

// CountPayment counts a request to Stripe. It failed if there was no answer, or a status of 500 or more.
func (m *Metrics) CountPayment(failed bool) {
	if m == nil {
		return
	}
	outcome := "ok"
	if failed {
		outcome = Failed
	}
	m.payments.WithLabelValues(outcome).Inc()
}

// ExpectJob says how old the last success of a background job may be. Until its first one, the time of this call counts
// as that of a success.
func (m *Metrics) ExpectJob(job string, maxAge time.Duration) {
	if m != nil {
		m.jobAges.WithLabelValues(job).Set(maxAge.Seconds())
		m.NoteJob(job)
	}
}

// NoteJob notes that a run of a background job has succeeded.
func (m *Metrics) NoteJob(job string) {
	if m != nil {
		m.jobSuccesses.WithLabelValues(job).SetToCurrentTime()
	}
}

// CountFailedJob counts a run of a background job that failed.
func (m *Metrics) CountFailedJob(job string) {
	if m != nil {
		m.jobs.WithLabelValues(job).Inc()
	}
}

// SetBacklog sets how many holds are open, the age of the oldest, and how many deliveries wait.
func (m *Metrics) SetBacklog(openHolds int64, oldestHold time.Duration, deliveriesWaiting int64) {
	if m != nil {
		m.openHolds.Set(float64(openHolds))
		m.oldestHold.Set(oldestHold.Seconds())
		m.deliveries.Set(float64(deliveriesWaiting))
	}
}

// SetUnclaimedEvents sets how long the oldest event has waited that is in no event log and has no deliveries yet.
func (m *Metrics) SetUnclaimedEvents(oldest time.Duration) {
	if m != nil {
		m.oldestEvent.Set(oldest.Seconds())
	}
}

// SetVerification sets what the last verification has found that has read the whole ledger, and when it ended; 0 = none
// has.
func (m *Metrics) SetVerification(findings, finishedUS int64) {
	if m != nil {
		m.findings.Set(float64(findings))
		m.verified.Set(float64(finishedUS) / 1e6)
	}
}

// WatchMemory adds what calls take of the memory of the node, read at each scrape, and what they may take together.
func (m *Metrics) WatchMemory(used func() int64, bound int64) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "purser_call_memory_used_bytes",
			Help: "Memory that calls in flight are counted to take.",
		}, func() float64 { return float64(used()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "purser_call_memory_bytes",
			Help: "Memory that calls in flight may take together: call_memory.",
		}, func() float64 { return float64(bound) }),
	)
}

// WatchNode adds the state of the node, which is read at each scrape: the age of its lease, and
// whether it accepts holds.
func (m *Metrics) WatchNode(leaseAge func() time.Duration, acceptsHolds func() bool) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "purser_lease_age_seconds",
			Help: "Time since this node has renewed its lease.",
		}, func() float64 { return leaseAge().Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "purser_accepts_holds",
			Help: "1 while this node accepts holds; 0 after a failed write, until one has succeeded.",
		}, func() float64 {
			if acceptsHolds() {
				return 1
			}
			return 0
		}))
}

// SetMailsPending sets the number of emails that wait to be sent.
func (m *Metrics) SetMailsPending(n int64) {
	if m != nil {
		m.waiting.Set(float64(n))
	}
}
