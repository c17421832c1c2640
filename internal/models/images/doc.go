// Package images checks the images of a request before the hold (contract §4.3, Images), and draws
// logos. An image comes as a data: URL or as a public http or https URL. Its type and dimensions
// are read from its first bytes. Images of requests are never decoded, and types that a client or
// server declares are ignored.
//
// Remote images are fetched for the providers that do not fetch them. Only public addresses are allowed: each address
// is checked when it is dialed, also after a redirect (F-83).
package images
