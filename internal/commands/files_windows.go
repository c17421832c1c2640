package commands

import (
	"os"

	"golang.org/x/sys/windows"
)

// syncFolder does nothing: Windows has no way to sync a folder.
func syncFolder(string) error { return nil }

// isPrivate reports whether the user who runs this process owns a file. Who else may read it follows from its folder.
func isPrivate(path string, _ os.FileInfo) bool {
	security, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return false
	}
	owner, _, err := security.Owner()
	if err != nil {
		return false
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	return err == nil && owner.Equals(user.User.Sid)
}

// isWritable does not know, and lets the first start tell.
func isWritable(string) bool { return true }

// otherUsersMay does not know: Windows has no such modes.
func otherUsersMay(os.FileInfo, os.FileMode) bool { return false }

// maxOpenFiles: Windows has no such limit.
func maxOpenFiles() (n uint64, known bool) { return 0, false }
