//go:build !nokernel

package ui

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
)

const longName = "payments-of-the-second-data-center-behind-the-old-firewall"

// TestLooks shows every view to a person ("make screenshots") and measures what can be measured, with few and with many Services,
// on a desk and on a telephone, in light and in dark: on a host without a cluster, where one of three balancers has a failing
// endpoint, and one has nothing else.
func TestLooks(t *testing.T) {
	for _, services := range []int{3, 2000} {
		t.Run(fmt.Sprintf("services=%d", services), func(t *testing.T) {
			t.Parallel()
			w, dir := lab.New(t), t.TempDir()
			daemon.Fill(t, dir, services-3, 3)
			daemon.WriteFile(t, dir, "balancers.yaml", balancer("web", "192.0.2.10", "10.0.1.1", "10.0.1.2", "10.0.2.1")+balancer("down", "192.0.2.11", "10.0.2.1")+
				balancer(longName, "192.0.2.12, 2001:db8:85a3:1234:5678:8a2e:1370:7334", "10.0.1.1",
					"10.0.1.2", lab.PodAddress(lab.IPv6, "a").String()))
			w.At(t, "c").Must(t, `table inet refuse { chain in { type filter hook input priority 0; tcp dport 8080 reject with tcp reset; }; }`,
				"nft", "-f", "-")
			d := daemon.Start(t, binary, w.Node, dir, "--ui", "--outlier-detection=off")
			b := startBrowser(t, w.Node)
			b.do("open the page", chromedp.Navigate("http://127.0.0.1:10249/ui/"))
			b.until("both failing endpoints are known", `/1\s*problem of an object\s*2\s*endpoints do/.test(document.querySelector("#figures").innerText)`)
			b.checkAttention()
			b.checkService()
			b.checkEverySize(fmt.Sprint(services))
			b.checkLost(d, fmt.Sprint(services))
		})
	}
}

// balancer is a balancer in the short form, with a check.
func balancer(name, address string, endpoints ...string) string {
	text := fmt.Sprintf("---\napiVersion: verdict-proxy.github.io/v1alpha1\nkind: LoadBalancer\nmetadata: {name: %s}\nspec:\n  addresses: [%s]\n"+
		"  ports: [{port: 80, targetPort: 8080}]\n  check: tcp interval=1s rise=1 fall=1\n  endpoints:\n", name, address)
	for _, e := range endpoints {
		text += "  - address: " + e + "\n"
	}
	return text
}

// checkAttention: what needs attention stands first, in the page and in the list, and leads to what it is about.
func (b *browser) checkAttention() {
	b.Helper()
	b.until("the list begins with what is down, then with the failing endpoint", `
		[...document.querySelectorAll("#rows a")].slice(0, 2).map(a => a.innerText).join() === "default/down,default/web"`)
	for service, want := range map[string]string{"default/down": "0 / 1, 1 failing\n", "default/web": "2 / 3, 1 failing\n"} {
		row := b.text(`[...document.querySelectorAll("#rows tr")].find(r => r.innerText.includes("` + service + `")).innerText.replaceAll("\t", "\n")`)
		if !strings.Contains(row, want) {
			b.Errorf("the row of %s lacks %q: %q", service, want, row)
		}
	}
	if got := b.text(`(at => "" + (at("#problems").bottom <= at("#search").top))(e => document.querySelector(e).getBoundingClientRect())`); got != "true" {
		b.Error("problems stand below the list")
	}
	got := b.text(`[...document.querySelectorAll("#problems .note")].map(n => n.innerText).join("\n")`)
	if !strings.HasPrefix(got, "default/down: all endpoints of ") ||
		!strings.Contains(got, "\ndefault/web: 10.0.2.1:8080 fails its check for ") {
		b.Errorf("to look at:\n%s", got)
	}
	for place, want := range map[string]string{
		"#problems": "#service/default/down,#service/default/web", "#figures": "#services/sort=problems,#services/sort=problems",
	} {
		if got := b.text(`[...document.querySelectorAll("` + place + ` a")].map(a => decodeURIComponent(a.hash)).join()`); got != want {
			b.Errorf("links of %s: %s", place, got)
		}
	}
	b.until("the link of a figure leads to the list", `(e => e && (e.click(), true))(document.querySelector("#figures a"))`)
	b.until("the focus is on its title", `document.activeElement.id === "services-title"`)
}

// checkService: a Service has its failing endpoint first. Without a policy Local, nothing speaks of it. The focus follows there and
// back.
func (b *browser) checkService() {
	b.Helper()
	b.click("open a Service", `#problems a[href="#service/default%2Fweb"]`)
	b.until("its failing endpoint comes first", `document.querySelector("#endpoints tr").innerText.startsWith("10.0.2.1:8080")`)
	if got := b.text(`document.activeElement.id`); got != "service-title" {
		b.Errorf("the focus is on %q", got)
	}
	if got := b.text(`document.querySelector("#endpoints").innerText`); strings.Contains(got, "Local") || strings.Count(got, "takes connections") != 2 {
		b.Errorf("the endpoints are %q", got)
	}
	b.do("go back", run(`history.back()`))
	b.until("the focus is on its link", `document.activeElement.hash === "#service/default%2Fweb"`)
}

// views are names of what the page shows, and where that is.
func views() [][2]string {
	return [][2]string{
		{"services", "services"}, {"service", "service/default%2Fweb"}, {"long", "service/default%2F" + longName}, {"changes", "changes"},
		{"explain", "explain/192.0.2.10:80"},
	}
}

// checkEverySize: nothing stands out at the right, or moves sideways, and every text has contrast.
func (b *browser) checkEverySize(name string) {
	b.Helper()
	for _, scheme := range []string{"dark", "light"} {
		b.scheme(scheme)
		if got := b.text(contrast); got != "" {
			b.Errorf("%s: too little contrast: %s", scheme, got)
		}
		for _, width := range []int64{1280, 800, 390} {
			for _, view := range views() {
				if scheme == "dark" && b.pictures == "" { // only a person sees the difference
					continue
				}
				b.do("another size", chromedp.EmulateViewport(width, 900))
				b.open(view[1])
				b.checkWidth(view[1])
				b.screenshot(fmt.Sprintf("%s-%s-%d-%s", name, view[0], width, scheme))
			}
		}
	}
}

func (b *browser) checkWidth(address string) {
	b.Helper()
	id, _, _ := strings.Cut(address, "/")
	if id == "explain" {
		b.do("ask", chromedp.SetValue(css("#source"), "outside"), run(`document.querySelector("#ask").requestSubmit()`))
		b.answered()
	}
	content := map[string]string{"services": "#rows a", "service": "#picture svg", "changes": "#plot svg", "explain": "#ask"}[id]
	b.until("its content", `document.querySelector("`+content+`").checkVisibility() && document.querySelector("#bar").innerText === ""`)
	b.until("drawings fit", `[...document.querySelectorAll("#view-`+id+` svg")].every(s => s.clientWidth === s.width.baseVal.value)`)
	if got := b.text(outside); got != "" {
		b.Errorf("%s: these are wider than the window: %s", address, got)
	}
}

// outside lists elements that reach over the edge, or have something to scroll sideways.
const outside = `[...document.querySelectorAll("body *:not(.skip, option)")].filter(e => e.checkVisibility() && (
	e.getBoundingClientRect().right > window.innerWidth + 0.5 ||
	e.scrollWidth > e.clientWidth + 1 && ["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX) && !e.matches("input, select")
)).slice(0, 5).map(e => e.tagName + " " + e.id + " " + e.textContent.slice(0, 60)).join("; ")`

// contrast lists colors of texts that lack the ratio 4.5 of WCAG on one of the backgrounds.
const contrast = `(() => {
	const style = getComputedStyle(document.documentElement), color = name => style.getPropertyValue("--" + name).trim();
	const light = c => [1, 3, 5].map(i => parseInt(c.slice(i, i + 2), 16) / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
	return ["text", "dim", "accent", "bad", "warn", "good"].flatMap(name => ["back", "soft"].map(on => [name, on, ratio(color(name), color(on))]))
		.filter(([, , r]) => !(r >= 4.5)).map(all => all.join(" ")).join("; ");
})()`

func (b *browser) scheme(name string) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	}); err != nil {
		b.Fatal(err)
	}
}

// checkLost: nobody takes what a daemon has last said for what is. One that hangs does not answer, either.
func (b *browser) checkLost(d *daemon.Daemon, name string) {
	b.Helper()
	lab.Must(b, lab.Suspend(d.PID()))
	b.open("services")
	const lost = `/^The daemon does not answer\. What you see is from \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\./.test(document.querySelector("#bar").innerText) &&
		["#figures", "main"].every(e => getComputedStyle(document.querySelector(e)).filter === "grayscale(1)") &&
		(r => r.left === 0 && r.top === 0 && r.width === document.documentElement.clientWidth)(document.querySelector("#bar").getBoundingClientRect())`
	b.until("the page says that the daemon does not answer", lost)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			b.scheme(scheme)
			b.do("another size", chromedp.EmulateViewport(width, 900))
			b.until("the bar goes across", lost)
			b.screenshot(fmt.Sprintf("%s-lost-%d-%s", name, width, scheme))
		}
	}
	lab.Must(b, syscall.Kill(d.PID(), syscall.SIGCONT))
	b.until("the daemon answers again", `
		document.querySelector("#bar").innerText === "" && getComputedStyle(document.querySelector("main")).filter === "none"`)
	lab.Must(b, d.Kill())
	d.Killed = true
	b.do("scroll to the end", run(`scrollTo(0, 100000)`))
	b.until("the page says that the daemon is gone", lost)
}

// checkSearch: words are names, addresses and ports, and an endpoint finds its Services. TestSearch has more.
func (b *browser) checkSearch() {
	b.Helper()
	b.open("services")
	for words, want := range map[string]string{
		"shop 10.96": "shop/empty,shop/web", "30080": "shop/web", "10.96.0.12:80": "shop/empty", "10.0.2.1:8080": "shop/web",
	} {
		b.do("search", run(fmt.Sprintf(`(q => { q.value = %q; q.dispatchEvent(new Event("input")); })(document.querySelector("#q"))`, words)))
		b.until("the search for "+words+" finds "+want, fmt.Sprintf(`[...document.querySelectorAll("#rows a")].map(a => a.innerText).join() === %q`, want))
	}
}

// checkReload: order, search and page stay after a reload, and after a look at a Service. The focus stays where it was.
func (b *browser) checkReload() {
	b.Helper()
	b.open("services/q=team-&sort=name&page=1")
	const second = `document.querySelector("#page").innerText === "page 2 of 400" && document.querySelector("#sort").value === "name" &&
		document.querySelector("#q").value === "team-" && document.querySelectorAll("#rows a").length === 25`
	b.until("the second page", second)
	b.click("the third page", "#next")
	b.until("the third page", `document.querySelector("#page").innerText === "page 3 of 400"`)
	b.do("reload", chromedp.Reload())
	b.until("the third page again", `document.querySelector("#page").innerText === "page 3 of 400" && document.querySelector("#sort").value === "name"`)
	b.do("the second page by the keyboard", run(`document.querySelector("#previous").focus()`), chromedp.KeyEvent(kb.Enter))
	b.until("the second page", second)
	if got := b.text(`document.activeElement.id`); got != "previous" {
		b.Errorf("the focus is on %q", got)
	}
	b.do("the first page by the keyboard", chromedp.KeyEvent(kb.Enter))
	b.until("the first page; no button before it", `document.querySelector("#previous").disabled && document.activeElement.id === "next"`)
	b.do("the second page by the keyboard", chromedp.KeyEvent(kb.Enter))
	b.until("the second page", second)
	b.do("focus a Service, and let the list differ from the next answer",
		run(`document.querySelectorAll("#rows a")[7].focus(); document.querySelector("#rows td:nth-child(6)").textContent = "old"`))
	b.until("the list is drawn again", `!document.querySelector("#rows").innerText.includes("old")`)
	href := b.text(`document.activeElement.hash`)
	b.do("open it by the keyboard", chromedp.KeyEvent(kb.Enter))
	b.until("the Service", `document.activeElement.id === "service-title"`)
	b.click("look at Services", `nav a[data-view="services"]`)
	b.until("the second page", second)
	b.until("the focus is on its link", fmt.Sprintf(`document.activeElement.hash === %q`, href))
	b.do("skip to the content", run(`document.querySelector("#skip").click()`))
	b.until("the focus is on the content of the same view", `document.activeElement.id === "main" && !document.querySelector("#view-services").hidden`)
}
