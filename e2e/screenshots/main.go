// Command screenshots makes the pictures of the README: it starts purser dev with its sample history,
// and photographs pages in Chromium. Its arguments are the binary and the folder for
// the pictures.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"golang.org/x/oauth2"
)

const width, height = 1200, 900 // of a picture, in CSS pixels

// devNode is the line of JSON with which purser dev says that it is ready.
type devNode struct {
	BaseURL     string `json:"base_url"`
	TestAccount login  `json:"test_account"`
	Developer   login  `json:"developer"`
	App         struct {
		ClientID    string `json:"client_id"`
		RedirectURI string `json:"redirect_uri"`
	} `json:"app"`
}

// login is how an account signs in.
type login struct {
	Email    string `json:"email"`
	Password string `json:"password"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: screenshots PURSER FOLDER")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := makeScreenshots(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

// makeScreenshots writes consent.png, dashboard.png and console.png to folder.
func makeScreenshots(ctx context.Context, binary, folder string) error {
	data, err := os.MkdirTemp("", "purser-screenshots-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	cmd := exec.CommandContext(ctx, binary, "dev", "--json", "--history=60d", "--listen=localhost:0", "--data="+data)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }()
	var node devNode
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&node); err != nil {
		return fmt.Errorf("start purser dev: %w", err)
	}
	return photograph(ctx, node, folder)
}

func photograph(ctx context.Context, node devNode, folder string) error {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return fmt.Errorf("%w: run make setup", err)
	}
	ctx, cancel := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.NoFirstRun)...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	if err := chromedp.Do(ctx); err != nil {
		return err
	}
	size := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1}
	if _, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, size); err != nil {
		return err
	}
	authorize := node.BaseURL + "/oauth/authorize?" + url.Values{
		"response_type":           {"code"},
		"client_id":               {node.App.ClientID},
		"redirect_uri":            {node.App.RedirectURI},
		"code_challenge":          {oauth2.S256ChallengeFromVerifier(oauth2.GenerateVerifier())},
		"code_challenge_method":   {"S256"},
		"state":                   {"screenshot"},
		"requested_allocation_mc": {"1000000000"},
		"features":                {"chat,summarize"},
	}.Encode()
	if _, err := chromedp.Run(ctx, chromedp.NavigateResponse(authorize)); err != nil {
		return err
	}
	if err := signIn(ctx, node.TestAccount); err != nil {
		return err
	}
	if err := save(ctx, filepath.Join(folder, "consent.png"), chromedp.FullScreenshot(100)); err != nil {
		return err
	}
	if _, err := chromedp.Run(ctx, chromedp.NavigateResponse(node.BaseURL+"/dashboard")); err != nil {
		return err
	}
	if err := save(ctx, filepath.Join(folder, "dashboard.png"), chromedp.CaptureScreenshot()); err != nil {
		return err
	}
	if _, err := chromedp.Call(ctx, network.ClearBrowserCookies, cdp.Empty{}); err != nil {
		return err
	}
	if _, err := chromedp.Run(ctx, chromedp.NavigateResponse(node.BaseURL+"/developer")); err != nil {
		return err
	}
	if err := signIn(ctx, node.Developer); err != nil {
		return err
	}
	return save(ctx, filepath.Join(folder, "console.png"), chromedp.CaptureScreenshot())
}

// signIn signs in on the page that is open.
func signIn(ctx context.Context, account login) error {
	fill := chromedp.Steps(
		chromedp.SendKeys(chromedp.CSS(`input[name=email]`), account.Email),
		chromedp.SendKeys(chromedp.CSS(`input[name=password]`), account.Password),
	)
	if _, err := chromedp.Run(ctx, fill); err != nil {
		return err
	}
	_, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(`form[action="/sign-in"] button`)))
	return err
}

// save writes the PNG that shoot takes to a file.
func save(ctx context.Context, file string, shoot chromedp.Action[[]byte]) error {
	picture, err := chromedp.Run(ctx, shoot)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, picture, 0o644)
}
