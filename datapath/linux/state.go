//go:build linux

package linux

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// state is what the kernel has no place for. It is written before the kernel is changed: after a crash it
// claims at most what is found to be the same anyway.
type state struct {
	path string
	// Sysctls holds the value that each of ours had before.
	Sysctls map[string]string `json:"sysctls"`
	// MACs holds the links whose address we set.
	MACs map[string]string `json:"macs"`
}

func openState(path string) (*state, error) {
	s := &state{path: path, Sysctls: map[string]string{}, MACs: map[string]string{}}
	if path == "" {
		return nil, errors.New("no state file")
	}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, os.MkdirAll(filepath.Dir(path), 0o700)
	case err != nil:
		return nil, fmt.Errorf("state file: %w", err)
	}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("state file %s: %w; it can be removed, former values of sysctls are then not restored", path, err)
	}
	if s.Sysctls == nil {
		s.Sysctls = map[string]string{}
	}
	if s.MACs == nil {
		s.MACs = map[string]string{}
	}
	return s, nil
}

// save replaces the file: a process that is killed leaves the old one or the new one.
func (s *state) save() error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(s.path), filepath.Base(s.path)+".*")
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("state file: %w", err)
	}
	return nil
}
