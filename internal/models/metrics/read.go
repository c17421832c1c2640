package metrics

import "fmt"

// A Count is the current value of a counter, with its labels in their order.
type Count struct {
	Labels []string
	N      int64
}

// Calls returns the calls of this node since it started: provider, model, outcome.
func (m *Metrics) Calls() ([]Count, error) {
	return m.readCounter("purser_calls_total", "provider", "model", "outcome")
}

// ProviderErrors returns the failures at providers: provider, status.
func (m *Metrics) ProviderErrors() ([]Count, error) {
	return m.readCounter("purser_provider_errors_total", "provider", "status")
}

// Alarms returns the alarms of this node since it started: alarm, subject.
func (m *Metrics) Alarms() ([]Count, error) {
	return m.readCounter("purser_alarms_total", "alarm", "subject")
}

// readCounter returns a counter by its name. A nil Metrics has no counts.
func (m *Metrics) readCounter(name string, labels ...string) (list []Count, err error) {
	if m == nil {
		return nil, nil
	}
	families, err := m.registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, sample := range f.GetMetric() {
			values := map[string]string{}
			for _, l := range sample.GetLabel() {
				values[l.GetName()] = l.GetValue()
			}
			c := Count{N: int64(sample.GetCounter().GetValue())}
			if c.N == 0 {
				continue // it is only expected
			}
			for _, l := range labels {
				c.Labels = append(c.Labels, values[l])
			}
			list = append(list, c)
		}
	}
	return list, nil
}
