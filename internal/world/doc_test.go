// Package world tries the whole product by a machine: the real server with all its jobs, under a simulated clock, with
// the people who use it, their bank, the providers and the receivers of webhooks in the same process.
//
// Box is what everything happens in. A history is a list of steps of actors (people.go, …), among which faults are
// drawn; judges (judge_….go) compare what the product says with what those outside know, by code of their own. A
// history that fails is cut to a shorter one and printed. Only tests import the package. docs/internals/world.md says
// how to add an actor, a fault or a judge, and what to do with a seed that fails.
package world
