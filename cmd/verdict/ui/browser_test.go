//go:build !nokernel

package ui

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

// browser is a chromium in the network namespace of the node.
type browser struct {
	*testing.T
	ctx      context.Context
	pictures string // the folder of pictures; "": nobody wants them
}

// startBrowser fails where there is no chromium: it is one of the packages that the tests need.
func startBrowser(t *testing.T, node *lab.Namespace) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v; the test of the page needs Debian's package chromium", err)
	}
	dir := t.TempDir()
	inside := filepath.Join(dir, "chromium-on-node")
	script := fmt.Sprintf("#!/bin/sh\nexec nsenter --net=/proc/%d/fd/%d %s \"$@\"\n", os.Getpid(), node.Fd(), program)
	if err := os.WriteFile(inside, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(inside), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(filepath.Join(dir, "profile")), chromedp.Env("HOME="+dir), chromedp.WindowSize(1280, 800),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP foreign.example 127.0.0.1"),
		chromedp.WSURLReadTimeout(2*time.Minute)) // by default, a browser has 20 s for its start
	ctx, stop := context.WithTimeout(t.Context(), 8*time.Minute)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	return &browser{t, ctx, os.Getenv("VERDICT_SCREENSHOTS")}
}

type step = chromedp.Action[chromedp.Void]

// do runs actions.
func (b *browser) do(what string, actions ...step) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.screenshot("failed")
		b.Fatalf("%s: %v", what, err)
	}
}

// until waits until an expression of JavaScript is true. The page's policy forbids the polling of chromedp.
func (b *browser) until(what, expression string) {
	b.Helper()
	holds := false
	for late := time.Now().Add(daemon.Patience); !holds; time.Sleep(50 * time.Millisecond) {
		var err error
		if holds, err = chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+expression+")")); err != nil {
			holds = false // the element may not be there yet
		}
		if time.Now().After(late) {
			b.screenshot("failed")
			b.Fatalf("waiting until %s: %v; the page shows:\n%.2000s", what, err, b.text(`document.body.innerText`))
		}
	}
}

// click clicks on an element as soon as it is there. The page draws its lists again and again, so an element may be
// replaced between two requests to the browser: one request has to find it and click on it.
func (b *browser) click(what, selector string) {
	b.Helper()
	b.until(what, fmt.Sprintf("(e => e && (e.click(), true))(document.querySelector(%q))", selector))
}

// open shows what an address asks for, and waits until the page has noticed it.
func (b *browser) open(address string) {
	b.Helper()
	b.do("open "+address, run(fmt.Sprintf(`window.noticed = location.hash === %[1]q;
		addEventListener("hashchange", () => { window.noticed = true }, {once: true});
		location.hash = %[1]q`, "#"+address)))
	b.until("the page has noticed "+address, `window.noticed`)
}

// answered waits for the answer of explain. The page gives up after five seconds; the machine may be busy for longer.
func (b *browser) answered() {
	b.Helper()
	b.until("the verdict is there; who gets none asks again", `document.querySelector("#answer .verdict") ||
		document.querySelector("#answer:not([aria-busy]) .note.bad") && document.querySelector("#ask").requestSubmit()`)
}

// text evaluates an expression of JavaScript.
func (b *browser) text(expression string) string {
	b.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return out
}

// screenshot writes a picture, if somebody wants it ("make screenshots").
func (b *browser) screenshot(name string) {
	if b.pictures == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Logf("take a screenshot: %v", err)
		return
	}
	if err := os.WriteFile(filepath.Join(b.pictures, name+".png"), picture, 0o644); err != nil {
		b.Error(err)
	}
}

// TestPage opens the page of a daemon with 10,000 Services in a real browser.
func TestPage(t *testing.T) {
	w, dir := lab.New(t), t.TempDir()
	daemon.Fill(t, dir, 10_000, 10)
	shop := daemon.Service{
		Name: "shop/web", ClusterIP: lab.Address(lab.IPv4, "VIP1"), NodePort: 30080, Node: "n1",
		Endpoints: []string{"10.0.1.1", "10.0.1.2", "10.0.2.1", "-10.0.2.2"},
	}
	daemon.WriteFile(t, dir, "shop.yaml", shop.Manifest())
	broken := daemon.Service{Name: "shop/empty", ClusterIP: lab.Address(lab.IPv4, "VIP2"), Spec: `"externalIPs": ["no address"],`}
	daemon.WriteFile(t, dir, "broken.yaml", broken.Manifest())
	d := daemon.Start(t, binary, w.Node, dir, "--ui", "--metrics-bind-address=0.0.0.0:10249")
	for range 4 {
		change(t, d, &shop)
	}
	b := startBrowser(t, w.Node)
	b.do("open the page", chromedp.EmulateViewport(1280, 800), chromedp.Navigate("http://127.0.0.1:10249/ui/"))
	b.until("the list has Services", `document.querySelectorAll("#rows tr").length === 25`)
	b.until("the figures count them", `document.querySelector("#figures").innerText.includes("10,002")`)
	b.until("the problem is shown", `document.querySelector("#problems").innerText.includes("shop/empty")`)
	b.screenshot("services")

	b.do("search", chromedp.SendKeys(css("#q"), "shop web"))
	b.until("one Service is found", `document.querySelector("#matches").innerText === "1 of 10,002 Services"`)
	b.checkRates(w)
	b.screenshot("search")

	b.click("open the Service", `#rows a[data-service="shop/web"]`)
	b.until("the picture has endpoints", `document.querySelectorAll("#picture path").length >= 5`)
	for _, want := range []string{"10.96.0.11:80", "node port 30080", "10.0.2.1:8080"} {
		if got := b.text(`document.querySelector("#picture").textContent`); !strings.Contains(got, want) {
			t.Errorf("the picture lacks %q: %s", want, got)
		}
	}
	b.until("the endpoint that is left out has a reason", `document.querySelector("#endpoints").innerText.includes("left out: not ready")`)
	b.screenshot("service")

	b.do("look at changes", chromedp.Click(css(`nav a[data-view="changes"]`)))
	b.until("the plot has points", `document.querySelectorAll("#plot circle").length >= 4`)
	change(t, d, &shop)
	b.click("open a pass", `#passes button`)
	b.until("its changes are in nft syntax", `/element ip verdict endpoints \{ .*10\.0\.1\.2/.test(document.querySelector("#passes pre").innerText)`)
	b.screenshot("changes")

	b.do("explain", chromedp.Click(css(`nav a[data-view="explain"]`)),
		chromedp.SendKeys(css("#source"), "10.0.1.1"), chromedp.SendKeys(css("#destination"), "10.96.0.11:80"), chromedp.Click(css("#ask button")))
	b.answered()
	if got := b.text(`document.querySelector("#answer .verdict").innerText`); !strings.HasPrefix(got, "goes to one of ") {
		t.Errorf("verdict %q", got)
	}
	b.screenshot("explain")
	b.do("explain nonsense", chromedp.SetValue(css("#destination"), "10.96.0.11"), chromedp.Click(css("#ask button")))
	b.until("the mistake is named", `document.querySelector("#answer .bad").innerText.includes("has no port")`)
	b.checkPages()
	b.checkSearch()
	b.checkReload()
	b.checkForeign()
}

// TestPageOfChecks: the page says which endpoints fail their check or are backups, and why.
func TestPageOfChecks(t *testing.T) {
	w, dir := lab.New(t), t.TempDir()
	shop := daemon.Service{
		Name: "shop/web", ClusterIP: lab.Address(lab.IPv4, "VIP1"), Node: "n1", Endpoints: []string{"10.0.1.1", "10.0.2.1"}, Backups: []string{"10.0.1.2"},
		Notes: `"verdict-proxy.github.io/health-check": "tcp interval=1s rise=1 fall=1",`,
	}
	daemon.WriteFile(t, dir, "shop.yaml", shop.Manifest())
	w.At(t, "c").Must(t, `table inet refuse { chain in { type filter hook input priority 0; tcp dport 8080 reject with tcp reset; }; }`,
		"nft", "-f", "-")
	daemon.Start(t, binary, w.Node, dir, "--ui", "--outlier-detection=off")
	b := startBrowser(t, w.Node)
	b.do("open the page", chromedp.EmulateViewport(1280, 800), chromedp.Navigate("http://127.0.0.1:10249/ui/"))
	const fails = `/10\.0\.2\.1:8080[^\n]* fails its check for \d+s: connection refused/`
	b.until("the overview names the failing endpoint", strings.Replace(fails, `/10`, `/shop\/web: 10`, 1)+
		`.test(document.querySelector("#problems").innerText)`)
	b.until("it does not name the backup", `!document.querySelector("#problems").innerText.includes("10.0.1.2")`)
	b.click("open the Service", `#rows a[data-service="shop/web"]`)
	b.until("the failing endpoint is marked", strings.Replace(fails, ` fails`, `fails`, 1)+
		`.test([...document.querySelectorAll("#endpoints tr")].filter(r => r.querySelector(".bad")).map(r => r.innerText).join("\n"))`)
	b.until("the backup is told", `document.querySelector("#endpoints").innerText.includes("backup, not used: another endpoint is good")`)
}

// change takes the second endpoint of a Service away, or brings it back, and waits until the kernel has that.
func change(t *testing.T, d *daemon.Daemon, s *daemon.Service) {
	t.Helper()
	before, err := d.Status()
	if err != nil {
		t.Fatal(err)
	}
	address, gone := strings.CutPrefix(s.Endpoints[1], "-")
	if !gone {
		address = "-" + address
	}
	s.Endpoints[1] = address
	d.Write(t, "shop.yaml", s.Manifest())
	d.WaitPass(t, before.Passes)
}

// checkRates makes connections until the list shows a rate.
func (b *browser) checkRates(w *lab.World) {
	b.Helper()
	to := lab.AddressPort(lab.IPv4, "VIP1", 80)
	for late := time.Now().Add(daemon.Patience); time.Now().Before(late); {
		for range 20 {
			w.At(b, "a").Once(b, lab.Question{Protocol: lab.TCP, To: to, Patience: daemon.Patience})
		}
		rate := b.text(`document.querySelector("#rows td:nth-child(4)").innerText`)
		if regexp.MustCompile(`[1-9]`).MatchString(rate) {
			return
		}
	}
	b.Error("the list shows no rate although connections come")
}

// checkPages turns pages of the list.
func (b *browser) checkPages() {
	b.Helper()
	b.open("services")
	b.until("all Services are listed", `document.querySelector("#page").innerText === "page 1 of 401"`)
	first := b.text(`document.querySelector("#rows a").innerText`)
	b.click("next page", "#next")
	b.until("the second page", `document.querySelector("#page").innerText === "page 2 of 401"`)
	if second := b.text(`document.querySelector("#rows a").innerText`); second == first {
		b.Errorf("both pages begin with %s", first)
	}
	b.do("order", chromedp.SetValue(css("#sort"), "problems"),
		run(`document.querySelector("#sort").dispatchEvent(new Event("change"))`))
	b.until("the Service with a problem comes first", `document.querySelector("#rows a").innerText === "shop/empty"`)
}

// checkForeign: a page of another host name, which leads to this host, gets nothing.
func (b *browser) checkForeign() {
	b.Helper()
	b.do("open the page by a foreign name", chromedp.Navigate("http://foreign.example:10249/ui/"))
	got := b.text(`document.body.innerText`)
	if !strings.Contains(got, "DNS rebinding") {
		b.Errorf("by a foreign name the page shows %q", got)
	}
	b.do("ask for data by a foreign name", run(`fetch("/ui/api/overview").then(r => { document.title = "status " + r.status })`))
	b.until("the data is refused", `document.title === "status 421"`)
}

type css = chromedp.CSS

// run runs JavaScript in the page.
func run(script string) step { return chromedp.Evaluate[chromedp.Void](script) }
