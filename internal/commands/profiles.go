package commands

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/config"
)

// defaultServer is where purser dev is.
const defaultServer = "http://127.0.0.1:8080"

// A profile is an app's access to the management API of a service (decision 080).
type profile struct {
	Name         string `json:"-"`      // that of its file
	Server       string `json:"server"` // base URL of the API
	AuthURL      string `json:"auth_url"`
	App          string `json:"app"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`

	// PublicClientID is that of an app on users' devices, which only purser dev has; "" = none.
	PublicClientID string `json:"public_client_id,omitempty"`
}

// devProfile is the profile of a development node, whose data folder has its file.
const devProfile = "dev"

// devFolder and devFile name that file.
const devFolder, devFile = "purser-data", "app.json"

// A profileStore is the folder with a file for each profile. Only its owner can read it.
type profileStore struct {
	folder string // "" = there is none, for lack of a home folder
	start  string // where the search for the data folder of purser dev begins; "" = nowhere
}

func newProfileStore(p *program) profileStore {
	s := profileStore{start: p.folder}
	if folder, err := configFolder(p.environ); err == nil {
		s.folder = filepath.Join(folder, "apps")
	}
	return s
}

// list returns all profiles, that of purser dev last.
func (s profileStore) list() (list []profile, err error) {
	paths := []string{}
	if s.folder != "" {
		if paths, err = filepath.Glob(filepath.Join(s.folder, "*.json")); err != nil {
			return nil, err
		}
	}
	for _, path := range paths {
		pr, err := readProfile(path)
		if err != nil {
			return nil, err
		}
		pr.Name = strings.TrimSuffix(filepath.Base(path), ".json")
		list = append(list, pr)
	}
	if path := findDevFile(s.start); path != "" {
		pr, err := readProfile(path)
		if err != nil {
			return nil, err
		}
		pr.Name = devProfile
		list = slices.DeleteFunc(list, func(other profile) bool { return other.Name == devProfile })
		list = append(list, pr)
	}
	return list, nil
}

// findDevFile returns the file in the data folder of purser dev, in a folder or in one above it; "" = there is none.
func findDevFile(folder string) string {
	for filepath.IsAbs(folder) {
		path := filepath.Join(folder, devFolder, devFile)
		if isPrivateFile(path) {
			return path
		}
		if filepath.Dir(folder) == folder {
			break
		}
		folder = filepath.Dir(folder)
	}
	return ""
}

// isPrivateFile reports whether path is a file that its owner, who runs this process, alone can read. A file that
// another user has put into a shared folder is ignored.
func isPrivateFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && isPrivate(path, info)
}

func readProfile(path string) (pr profile, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return profile{}, err
	}
	if err := json.Unmarshal(text, &pr); err != nil {
		return profile{}, fmt.Errorf("%s: is no profile; delete it and run purser apps login: %w", path, err)
	}
	if pr.Server, err = parseServer(pr.Server); err != nil {
		return profile{}, fmt.Errorf("%s: server: %w", path, err)
	}
	return pr, nil
}

// profileName matches the name of a profile, which is the name of its file.
var profileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// write stores a profile in place of an earlier one of its name.
func (s profileStore) write(pr profile) error {
	text, err := json.MarshalIndent(pr, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		return err
	}
	return replaceFile(filepath.Join(s.folder, pr.Name+".json"), append(text, '\n'))
}

// remove deletes a profile.
func (s profileStore) remove(name string) error {
	if s.folder == "" || !profileName.MatchString(name) {
		return os.ErrNotExist
	}
	return os.Remove(filepath.Join(s.folder, name+".json"))
}

// appFlags choose the app that a command works for, and its service.
type appFlags struct {
	Profile      string `predict:"profile" placeholder:"NAME" help:"Profile of purser apps; or PURSER_PROFILE."`
	URL          string `name:"url" placeholder:"URL" help:"The service (default: the profile's)."`
	App          string `placeholder:"ID" help:"The app's id; or PURSER_APP."`
	ClientID     string `name:"client-id" placeholder:"ID" help:"The app's client_id; or PURSER_CLIENT_ID."`
	ClientSecret string `name:"client-secret" placeholder:"SECRET" help:"${clientSecretHelp}"`
}

// clientSecretHelp is the help of --client-secret.
const clientSecretHelp = "The app's client_secret; prefer PURSER_CLIENT_SECRET, because other users of the machine " +
	"can read flags."

// appHelp says how a command finds its app, for its help.
const appHelp = "The app is that of the only profile, which purser apps login makes and purser dev writes into its " +
	"data folder. PURSER_APP, PURSER_CLIENT_ID and PURSER_CLIENT_SECRET go before it."

// choose returns the app that flags, environment and profiles name, in this order. A profile is used whole: its secret
// never goes to an app or a service that another source names.
func (f appFlags) choose(p *program) (profile, error) {
	pr := profile{Server: strings.TrimSuffix(f.URL, "/")}
	var missing []string
	for _, v := range []struct {
		name, flag string
		to         *string
	}{
		{config.AppVariable, f.App, &pr.App}, {config.ClientIDVariable, f.ClientID, &pr.ClientID},
		{config.ClientSecretVariable, f.ClientSecret, &pr.ClientSecret},
	} {
		if *v.to = cmp.Or(v.flag, environmentVariable(p.environ, v.name)); *v.to == "" {
			missing = append(missing, v.name)
		}
	}
	switch {
	case f.Profile == "" && len(missing) == 0:
		pr.Server = cmp.Or(pr.Server, defaultServer)
		pr.AuthURL = pr.Server
		return pr, nil
	case f.Profile == "" && len(missing) < 3:
		return profile{}, exitError{fmt.Errorf("%s: required, or its flag", missing[0]), exitUsage}
	case f.App+f.ClientID+f.ClientSecret != "":
		return profile{}, exitError{errors.New("--profile: has the app's id, client_id and client_secret"), exitUsage}
	}
	return f.chooseProfile(p)
}

// chooseProfile returns the profile that the flags or the environment name, or the only one.
func (f appFlags) chooseProfile(p *program) (profile, error) {
	name := cmp.Or(f.Profile, environmentVariable(p.environ, config.ProfileVariable))
	list, err := newProfileStore(p).list()
	if err != nil {
		return profile{}, exitError{err, exitUsage}
	}
	server := strings.TrimSuffix(f.URL, "/")
	list = slices.DeleteFunc(list, func(pr profile) bool {
		return name != "" && pr.Name != name || server != "" && pr.Server != server
	})
	switch {
	case len(list) == 1:
		return list[0], nil
	case len(list) > 1:
		return profile{}, exitError{errors.New(
			"there are several profiles; choose one by --profile or PURSER_PROFILE; purser apps lists them"), exitUsage}
	case name != "":
		return profile{}, exitError{fmt.Errorf("there is no profile %s; see purser apps", name), exitUsage}
	}
	return profile{}, exitError{errors.New("no app is known: run purser apps login, or start purser dev in this " +
		"folder, or set PURSER_APP, PURSER_CLIENT_ID and PURSER_CLIENT_SECRET"), exitUsage}
}

// newClient returns a client that calls the service as the app.
func (f appFlags) newClient(p *program) (*appClient, error) {
	pr, err := f.choose(p)
	if err != nil {
		return nil, err
	}
	return pr.newClient(), nil
}

// newClient returns a client that calls the service as the app of the profile.
func (pr profile) newClient() *appClient {
	return &appClient{
		server:   pr.Server,
		appPath:  "/v1/apps/" + url.PathEscape(pr.App),
		clientID: pr.ClientID,
		secret:   pr.ClientSecret,
		http: &http.Client{
			Timeout: 30 * time.Second,
			// A redirect must not get the secret.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}
