// Package children lets an app pass parts of a connection's budget on, each with a token of its own: to another
// agent, a job, or a user's task (decision 107).
package children
