package state

import (
	"strings"
	"testing"
	"time"
)

func TestParseHealthCheck(t *testing.T) {
	web := HealthCheck{Kind: CheckHTTP, Path: "/", MinStatus: 200, MaxStatus: 399, Interval: 5 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
	for text, change := range map[string]func(*HealthCheck){
		"http":   func(*HealthCheck) {},
		" http ": func(*HealthCheck) {},
		"http path=/healthz?a=b status=204 interval=1m timeout=30s rise=1 fall=100 port=8080": func(c *HealthCheck) {
			c.Path, c.MinStatus, c.MaxStatus, c.Port = "/healthz?a=b", 204, 204, 8080
			c.Interval, c.Timeout, c.Rise, c.Fall = time.Minute, 30*time.Second, 1, 100
		},
		"https status=200-299 server-name=a.example": func(c *HealthCheck) {
			c.Kind, c.MaxStatus, c.Host = CheckHTTPS, 299, "a.example"
		},
		"tcp interval=1s": func(c *HealthCheck) {
			*c = HealthCheck{Kind: CheckTCP, Interval: time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
		},
		"dns name=_x.kube.local.": func(c *HealthCheck) {
			*c = HealthCheck{Kind: CheckDNS, Host: "_x.kube.local.", Interval: 5 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
		},
		"off": func(c *HealthCheck) { *c = HealthCheck{} },
	} {
		want := web
		change(&want)
		if got, err := ParseHealthCheck(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestParseHealthCheckRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "it is empty",
		"icmp":                              `"icmp" is not tcp, http, https, dns or off`,
		"off interval=5s":                   "off has no parameters",
		"tcp path=/":                        `"path" is not a parameter of tcp`,
		"http name=a":                       `"name" is not a parameter of http`,
		"http path=/ path=/":                `"path" occurs twice`,
		"http path":                         `path="" is not a path`,
		"http path=healthz":                 `path="healthz" is not a path`,
		"http path=/\x01":                   "is not a path",
		"http path=/" + longText(128):       "is not a path",
		"http status=99":                    `status="99" is not a number from 100 to 599`,
		"http status=300-200":               "is an empty range",
		"http status=200-":                  `status="" is not a number`,
		"tcp interval=999ms":                `interval="999ms" is not a time from 1s to 10m0s`,
		"tcp interval=5":                    "is not a time",
		"tcp timeout=-1s":                   "is not a time",
		"tcp interval=2s timeout=3s":        "timeout=3s is longer than interval=2s",
		"tcp rise=0":                        `rise="0" is not a number from 1 to 100`,
		"tcp fall=101":                      "is not a number from 1 to 100",
		"tcp port=65536":                    "is not a number from 1 to 65535",
		"https server-name=a..b":            "is not a name in DNS",
		"https server-name=":                "is not a name in DNS",
		"dns name=" + longText(64) + ".com": "is not a name in DNS",
	} {
		if got, err := ParseHealthCheck(text); err == nil || got != (HealthCheck{}) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50q: %+v, %v, want the error %q", text, got, err, want)
		}
	}
}

func longText(n int) string { return strings.Repeat("a", n) }

// FuzzHealthCheck: what is taken is within its bounds, and an error shows a bounded part of the text.
func FuzzHealthCheck(f *testing.F) {
	for _, text := range []string{
		"", "off", "tcp", "http path=/healthz status=200-399 interval=5s timeout=1s rise=2 fall=3 server-name=a.b", "dns name=a", "https port=1 =",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseHealthCheck(text)
		switch {
		case err != nil && (c != HealthCheck{} || len(err.Error()) > 400):
			t.Fatalf("%+v with the error %v", c, err)
		case err != nil || c.Kind == CheckOff:
		case c.Interval < MinCheckInterval || c.Timeout <= 0 || c.Timeout > c.Interval || c.Rise == 0 || c.Fall == 0:
			t.Fatalf("%q: %+v", text, c)
		case strings.ContainsAny(c.Path+c.Host, " \r\n\x00") || len(c.Path) > maxCheckPath || len(c.Host) > maxCheckHost:
			t.Fatalf("%q: %+v", text, c)
		}
	})
}

func TestParseAllDown(t *testing.T) {
	for text, want := range map[string]AllDown{"keep": KeepAll, "reject": RefuseAll, "backup": BackupOnly} {
		if got, err := ParseAllDown(text); got != want || err != nil {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	if _, err := ParseAllDown("drop"); err == nil {
		t.Error("drop is taken")
	}
}
