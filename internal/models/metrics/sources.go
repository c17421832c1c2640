package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/estimates/calibration"
)

// sources collects the numbers of other packages at each scrape.
type sources struct {
	prices    *catalog.Source
	estimates *estimates.Calibration
}

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	ratioMean = newDesc("purser_estimate_ratio", "Real by counted input tokens: the decayed mean of the last calls.",
		"model")
	ratioMax = newDesc("purser_estimate_ratio_max",
		"The largest such ratio of the last 256 to 512 calls that were not small.", "model")
	factor = newDesc("purser_estimate_factor", "What the count of the next call is multiplied by for its hold.",
		"model")
	compared = newDesc("purser_estimate_calls_total",
		"Calls whose real input was compared with its count, over all restarts.", "model")
	tooLow = newDesc("purser_estimate_alarms_total",
		"Calls whose real input exceeded the share of the hold that was for it.", "model")
	priceListInfo = newDesc("purser_prices_info", "The version of the current price list.", "version")
	priceBroken   = newDesc("purser_prices_broken",
		"1 while the operator's file of prices cannot be used, and those before stay in force.")
	priceFails = newDesc("purser_prices_failures_total",
		"Changes of the operator's file of prices that could not be used.")
)

// Describe names what Collect yields.
func (sources) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ratioMean, ratioMax, factor, compared, tooLow, priceListInfo, priceBroken,
		priceFails} {
		to <- d
	}
}

// Collect reads the current values.
func (s sources) Collect(to chan<- prometheus.Metric) {
	put := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	for _, r := range s.estimates.Stats() {
		put(ratioMean, prometheus.GaugeValue, toRatio(r.MeanPPM), r.Model)
		put(ratioMax, prometheus.GaugeValue, toRatio(max(r.MaxPPM, r.PriorPPM)), r.Model)
		put(factor, prometheus.GaugeValue, toRatio(r.FactorPPM()), r.Model)
		put(compared, prometheus.CounterValue, float64(r.Calls), r.Model)
		put(tooLow, prometheus.CounterValue, float64(r.Alarms), r.Model)
	}
	put(priceListInfo, prometheus.GaugeValue, 1, s.prices.Current().Version())
	broken := 0.0
	if s.prices.Broken() {
		broken = 1
	}
	put(priceBroken, prometheus.GaugeValue, broken)
	put(priceFails, prometheus.CounterValue, float64(s.prices.Failures()))
}

func toRatio(ppm int64) float64 { return float64(ppm) / calibration.RatioOne }
