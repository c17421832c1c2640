// Package pages has no code. Its folder holds the pages of users, developers and operators, and the
// API of operators. A page shows and asks; what it changes, it changes through the package that
// owns it.
package pages
