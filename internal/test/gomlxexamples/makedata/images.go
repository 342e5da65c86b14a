package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/gomlx/gomlx/examples/cifar"
	"github.com/gomlx/gomlx/examples/mnist"
)

// picture returns an image with a bright band, whose position and slope depend on the class, and
// noise. The bytes are in the order row, column, channel.
func picture(r *rand.Rand, class, classes, size, channels int) []byte {
	p := make([]byte, size*size*channels)
	for y := range size {
		for x := range size {
			along := (y*(1+class%3) + x*(1+class%2)) % size
			bright := along*classes/size == class
			for c := range channels {
				v := r.IntN(60)
				if bright {
					v += 120 + 20*((class+c)%4)
				}
				p[(y*size+x)*channels+c] = byte(v)
			}
		}
	}
	return p
}

// mnistImages returns a function that writes the four compressed files of handwritten digits.
func mnistImages(train, test int) func(dir string, r *rand.Rand) error {
	return func(dir string, r *rand.Rand) error {
		return mnistParts(dir, r, train, test)
	}
}

func mnistParts(dir string, r *rand.Rand, train, test int) error {
	for _, part := range []struct {
		images, labels string
		n              int
	}{{mnist.TrainImagesFilename, mnist.TrainLabelsFilename, train}, {mnist.TestImagesFilename, mnist.TestLabelsFilename,
		test}} {
		images, labels := bytes.Buffer{}, bytes.Buffer{}
		for _, header := range []struct {
			to   *bytes.Buffer
			data []int32
		}{{&images, []int32{mnist.ImageMagic, int32(part.n), mnist.Height, mnist.Width}},
			{&labels, []int32{mnist.LabelMagic, int32(part.n)}}} {
			if err := binary.Write(header.to, binary.BigEndian, header.data); err != nil {
				return err
			}
		}
		for range part.n {
			class := r.IntN(mnist.NumClasses)
			images.Write(picture(r, class, mnist.NumClasses, mnist.Width, 1))
			labels.WriteByte(byte(class))
		}
		if err := compressed(filepath.Join(dir, part.images), images.Bytes()); err != nil {
			return err
		}
		if err := compressed(filepath.Join(dir, part.labels), labels.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func compressed(name string, data []byte) error {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// cifarImages writes one of the six files of 10,000 images and creates links to it for the other
// files, because the example requires all files at full size.
func cifarImages(dir string, r *rand.Rand) error {
	dir = filepath.Join(dir, cifar.C10SubDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	const size, kinds = 32, 40 // distinct images per class
	var images [10][][]byte
	for class := range images {
		for range kinds {
			image, planes := picture(r, class, 10, size, 3), make([]byte, 0, size*size*3)
			for c := range 3 {
				for i := range size * size {
					planes = append(planes, image[i*3+c])
				}
			}
			images[class] = append(images[class], planes)
		}
	}
	var b bytes.Buffer
	for range cifar.C10ExamplesPerFile {
		class := r.IntN(10)
		b.WriteByte(byte(class))
		b.Write(images[class][r.IntN(kinds)])
	}
	if err := os.WriteFile(filepath.Join(dir, "test_batch.bin"), b.Bytes(), 0o644); err != nil {
		return err
	}
	for i := range 5 {
		if err := os.Symlink("test_batch.bin", filepath.Join(dir, fmt.Sprintf("data_batch_%d.bin", i+1))); err != nil &&
			!os.IsExist(err) {
			return err
		}
	}
	return nil
}
