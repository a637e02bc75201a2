package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocuments: a document is written as line:JSON, a fault as line:part of the text.
func TestDocuments(t *testing.T) {
	for _, tt := range []struct {
		name, file, data string
		docs             []string
		faults           []string
	}{
		{"one", "a.yaml", "a: 1\n", []string{`1:{"a":1}`}, nil},
		{"no newline at the end", "a.yaml", "a: 1", []string{`1:{"a":1}`}, nil},
		{"several", "a.yaml", "a: 1\n---\nb: 2\n---\nc: 3\n", []string{`1:{"a":1}`, `3:{"b":2}`, `5:{"c":3}`}, nil},
		{"separators everywhere", "a.yaml", "---\n---\n\n---\na: 1\n---\n", []string{`5:{"a":1}`}, nil},
		{"comments only", "a.yaml", "# nothing\n---\n# here\n", nil, nil},
		{"comment on the separator", "a.yaml", "--- # first\na: 1\n", []string{`2:{"a":1}`}, nil},
		{"content on the separator", "a.yaml", "--- {a: 1}\n", []string{`1:{"a":1}`}, nil},
		{"directive", "a.yaml", "%YAML 1.1\n---\na: 1\n", []string{`3:{"a":1}`}, nil},
		{"dashes inside", "a.yaml", "a: |\n  ---\n  x\nb: ---x\n", []string{`1:{"a":"---\nx\n","b":"---x"}`}, nil},
		{"line ends of Windows", "a.yaml", "a: 1\r\n---\r\nb: 2\r\n", []string{`1:{"a":1}`, `3:{"b":2}`}, nil},
		{"byte order mark", "a.yaml", "\ufeffa: 1\n", []string{`1:{"a":1}`}, nil},
		{"empty", "a.yaml", "", nil, nil},
		{"unfinished mapping", "a.yaml", "a:\n  b: 1\n  c\n", nil, []string{"3:could not find expected ':'"}},
		{"bad indentation", "a.yaml", "a: 1\n---\nb:\n  c: 1\n d: 2\n", []string{`1:{"a":1}`}, []string{"5:did not find expected key"}},
		{"key twice", "a.yaml", "x: 1\n---\na: 1\nb: 2\na: 3\n", []string{`1:{"x":1}`}, []string{`5:key "a" already set in map`}},
		{"faults do not hide what follows", "a.yaml", "a: [\n---\nb: 1\n", []string{`3:{"b":1}`}, []string{"1:did not find expected node content"}},
		{"JSON in a YAML file", "a.yaml", "---\n{\n\t\"a\": 1\n}\n{\"b\": 2}\n", []string{"2:{\n\t\"a\": 1\n}", `5:{"b": 2}`}, nil},
		{"flow style", "a.yml", "{a: 1, b: [x]}\n", []string{`1:{"a":1,"b":["x"]}`}, nil},
		{"JSON", "a.json", "\n {\"a\": 1}\n\n{\"b\": 2}", []string{`2:{"a": 1}`, `4:{"b": 2}`}, nil},
		{"JSON that breaks off", "a.json", "{\"a\": 1}\n{\"b\":\n  2", []string{`1:{"a": 1}`}, []string{"3:unexpected EOF"}},
		{"JSON with an error", "a.json", "{\n  \"a\": 1,\n  b: 2\n}", nil, []string{"3:invalid character 'b'"}},
		{"YAML in a JSON file", "a.json", "a: 1\n", nil, []string{"1:invalid character 'a'"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			docs, faults := documents(tt.file, []byte(tt.data))
			var got []string
			for _, d := range docs {
				got = append(got, fault{d.line, string(d.json)}.short())
			}
			if diff := cmp.Diff(tt.docs, got); diff != "" {
				t.Errorf("documents (-want +got):\n%s", diff)
			}
			if len(faults) != len(tt.faults) {
				t.Fatalf("faults %v, want %v", faults, tt.faults)
			}
			for i, f := range faults {
				if !strings.HasPrefix(f.short(), tt.faults[i]) {
					t.Errorf("fault %q, want %q", f.short(), tt.faults[i])
				}
			}
		})
	}
}

func (f fault) short() string {
	return strings.TrimPrefix(strings.Replace(f.String(), ": ", ":", 1), "line ")
}
