// Package images looks at the images of a request before money is held (spec
// §4.3, Images). An image comes as a data: URL or as a public http or https URL.
// What it is and how large it is are read from its first bytes; nothing is ever
// decoded, and nothing that a client or a server declares is believed.
//
// Remote images are fetched for the providers that do not do so themselves, from
// public addresses only: each address is checked when it is dialled, on each
// hop, so no spelling, resolver or redirect leads elsewhere.
package images
