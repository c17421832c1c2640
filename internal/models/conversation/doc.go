// Package conversation is what people, apps and models say to each other, in the form in which Purser passes it on:
// requests have turns of blocks, answers are deltas of blocks. It does not know how a client or a provider writes it.
package conversation
