// Package nodes tries real processes: what is killed, stopped or restarted, several nodes on one database, and nodes
// whose database, disk or proxy breaks. Its tests start the binary and link nothing of its pages and providers, so that
// a change there does not run them again. Only tests are in it.
package nodes

import "github.com/purserhq/purser/internal/testkit/servertest"

func init() { servertest.UseArea("PURSER_TEST_NODES") }
