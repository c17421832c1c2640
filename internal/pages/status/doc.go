// Package status counts how the parts of the service fare, keeps the counts for three days, and serves GET /status, the
// page that tells visitors how the service is now and was in the last 24 hours. The counts come from the metrics of
// each node, which a job reads: a call pays nothing.
package status
