// Package members lets more than one account work on an app (decision 088): invitations by email, roles, and leaving.
// What a role allows is in package apps.
//
// Each change of an app's members locks the app first and reads the role of the acting account after that, so two
// changes never judge by the same old state. The app's own account, which the margin and the test accounts belong to,
// is an owner by apps.owner_id and has no row in app_members: it cannot be removed or demoted, so an app always has an
// owner.
package members
