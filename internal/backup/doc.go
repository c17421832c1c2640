// Package backup copies a whole database to a file and back (decision 094): `purser backup`, `purser restore`,
// `purser db copy`, and the backups that a node makes each day.
//
// A backup has all rows of one snapshot, in a form that belongs to neither engine, so that a SQLite file may be
// restored into PostgreSQL. It is taken while nodes run. It is compressed, and encrypted if its caller wants that
// (package age). Its last part is the manifest: the rows of each table, a digest of all bytes before, and a digest of
// the heads of all hash chains. A file that lacks its end has no manifest, and is never taken for a backup.
package backup
