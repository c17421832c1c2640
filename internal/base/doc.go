// Package base has no code. Its folder holds what any service needs: values such as money and ids,
// errors, the database, secrets at rest, HTTP, and the frame of pages. Nothing in it knows what
// Purser sells: a package of base imports only other packages of base.
package base
