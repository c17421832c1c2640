// Package dashboard serves the pages on which people look after what they lent to
// apps: their connections, the answer to an allocation request, the cap, and the
// review of a connection that is paused (spec §2, 2; §3; §7, increase_url and
// review_url). A GET never changes anything, and what belongs to somebody else is
// answered like what does not exist.
package dashboard
