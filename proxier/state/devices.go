package state

import (
	"maps"
	"slices"
	"sync"
)

// Device is a network device of this host that is not the loopback one.
type Device struct {
	Name string
	Port bool // of a bridge, a bond or a VRF
}

// devices are those of this host, by index. They come and go with pods, so they do not wake the loop: the dataplane looks at them each second.
type devices struct {
	access sync.Mutex
	of     map[int]Device
}

// SetDevices replaces the devices.
func (d *devices) SetDevices(of map[int]Device) {
	d.access.Lock()
	defer d.access.Unlock()
	d.of = of
}

// SetDevice records a device by its index; the zero Device: there is none.
func (d *devices) SetDevice(index int, is Device) {
	d.access.Lock()
	defer d.access.Unlock()
	if is == (Device{}) {
		delete(d.of, index)
		return
	}
	if d.of == nil {
		d.of = map[int]Device{}
	}
	d.of[index] = is
}

// Devices lists the devices, in no particular order.
func (d *devices) Devices() []Device {
	d.access.Lock()
	defer d.access.Unlock()
	return slices.Collect(maps.Values(d.of))
}
