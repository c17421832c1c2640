// Command screenshots makes the pictures of the README: it starts purser dev, makes some calls,
// and photographs pages in Chromium. Its arguments are the binary and the folder for
// the pictures.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"golang.org/x/oauth2"
)

const width, height = 1200, 900 // of a picture, in CSS pixels

// devNode is the line of JSON with which purser dev says that it is ready.
type devNode struct {
	BaseURL     string `json:"base_url"`
	TestAccount struct {
		Email    string `json:"email"`
		Password string `json:"password"`
	} `json:"test_account"`
	App struct {
		ClientID    string `json:"client_id"`
		RedirectURI string `json:"redirect_uri"`
	} `json:"app"`
	Connection struct {
		AccessToken string `json:"access_token"`
	} `json:"connection"`
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

// makeScreenshots writes consent.png and dashboard.png to folder.
func makeScreenshots(ctx context.Context, binary, folder string) error {
	data, err := os.MkdirTemp("", "purser-screenshots-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	cmd := exec.CommandContext(ctx, binary, "dev", "--json", "--listen=127.0.0.1:0", "--data="+data)
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
	if err := makeCalls(ctx, node); err != nil {
		return err
	}
	return photograph(ctx, node, folder)
}

// makeCalls spends some money, so that the dashboard has something to show.
func makeCalls(ctx context.Context, node devNode) error {
	for n := range 12 {
		body := fmt.Appendf(nil, `{"max_tokens":%d,"messages":[{"role":"user","content":"Describe harbour %d."}]}`,
			200+50*n, n)
		address := node.BaseURL + "/v1/ai/gpt-6-luna"
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+node.Connection.AccessToken)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", fmt.Sprintf("00000000-0000-4000-8000-%012d", n))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("call %d: %s", n, resp.Status)
		}
	}
	return nil
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
	signIn := chromedp.Steps(
		chromedp.SendKeys(chromedp.CSS(`input[name=email]`), node.TestAccount.Email),
		chromedp.SendKeys(chromedp.CSS(`input[name=password]`), node.TestAccount.Password),
	)
	if _, err := chromedp.Run(ctx, signIn); err != nil {
		return err
	}
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(`form[action="/sign-in"] button`))); err != nil {
		return err
	}
	if err := save(ctx, filepath.Join(folder, "consent.png"), chromedp.FullScreenshot(100)); err != nil {
		return err
	}
	if _, err := chromedp.Run(ctx, chromedp.NavigateResponse(node.BaseURL+"/dashboard")); err != nil {
		return err
	}
	return save(ctx, filepath.Join(folder, "dashboard.png"), chromedp.CaptureScreenshot())
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
