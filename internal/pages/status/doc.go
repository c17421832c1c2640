// Package status counts how the parts of the service fare, keeps the counts for 400 days, and serves GET /status, the
// page that tells visitors. The counts come from the metrics of each node, which a job reads: a call pays nothing.
package status
