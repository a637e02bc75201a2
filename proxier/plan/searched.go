package plan

import "slices"

// few is the length up to which lists are searched without a map. Nearly every Service has fewer ports and addresses.
const few = 16

// searched is a list that is searched often.
type searched[T comparable] struct {
	list []T
	set  map[T]struct{} // of a long list
}

func (s *searched[T]) has(v T) bool {
	if s.set == nil {
		return slices.Contains(s.list, v)
	}
	_, found := s.set[v]
	return found
}

func (s *searched[T]) add(v T) {
	s.list = append(s.list, v)
	if s.set != nil {
		s.set[v] = struct{}{}
	} else if len(s.list) > few {
		s.set = make(map[T]struct{}, 2*few)
		for _, v := range s.list {
			s.set[v] = struct{}{}
		}
	}
}
