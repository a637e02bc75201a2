package state

import "testing"

func TestUID(t *testing.T) {
	for text, want := range map[string]string{
		"6a3c1f5e-0b8d-4c57-9d0e-2f1a7b9c8d7e": "6a3c1f5e-0b8d-4c57-9d0e-2f1a7b9c8d7e",
		"":                                     "",
		"no-uuid":                              "",
		"6a3c1f5e-0b8d-4c57-9d0e-2f1a7b9c8dxx": "",
	} {
		if got := ParseUID(text).String(); got != want {
			t.Errorf("ParseUID(%q) is %q, want %q", text, got, want)
		}
	}
}
