package schedule

// Room is how much there can be of something at once. A namespace can have a part of what the others leave: with two parts,
// half of the room, and the next namespace half of the rest. So a few greedy namespaces do not fill it.
type Room struct {
	size, parts, used int
	of                map[string]int // by namespace
}

// NewRoom returns an empty room.
func NewRoom(size, parts int) *Room { return &Room{size: size, parts: parts, of: map[string]int{}} }

// Used returns how much there is, of all namespaces and of one.
func (r *Room) Used(namespace string) (all, own int) { return r.used, r.of[namespace] }

// Full reports whether a namespace can have no more.
func (r *Room) Full(namespace string) bool {
	own := r.of[namespace]
	left := r.size - (r.used - own)
	return r.used >= r.size || own >= (left+r.parts-1)/r.parts
}

// Take takes one place for a namespace; false: it is full.
func (r *Room) Take(namespace string) bool {
	if r.Full(namespace) {
		return false
	}
	r.of[namespace]++
	r.used++
	return true
}

// Leave gives one place of a namespace back.
func (r *Room) Leave(namespace string) {
	r.used--
	if r.of[namespace]--; r.of[namespace] == 0 {
		delete(r.of, namespace)
	}
}
