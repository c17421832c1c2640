package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// A column of a table shows a figure of each row: the median of its samples, which are one of each round.
type column[T any] struct {
	title, format string
	figure        func(T) float64 // none shows nothing
}

// none is the figure of a sample that has none.
var none = math.NaN()

// ms returns microseconds in milliseconds.
func ms(us int64) float64 { return float64(us) / 1000 }

// mb returns KiB in MiB.
func mb(kib int64) float64 { return float64(kib) / 1024 }

// ifPositive returns a figure that is none if there is nothing to compare with.
func ifPositive(figure float64) float64 {
	if figure > 0 {
		return figure
	}
	return none
}

// printTable prints a table in Markdown. Samples of the same label are one row; labels may be several cells.
func printTable[T any](w io.Writer, titles string, list []T, label func(T) string, columns []column[T]) {
	var labels []string
	of := map[string][]T{}
	for _, s := range list {
		l := label(s)
		if of[l] == nil {
			labels = append(labels, l)
		}
		of[l] = append(of[l], s)
	}
	fmt.Fprintf(w, "\n| %s |", titles)
	for _, c := range columns {
		fmt.Fprintf(w, " %s |", c.title)
	}
	fmt.Fprintf(w, "\n|%s\n", strings.Repeat("---|", 1+strings.Count(titles, "|")+len(columns)))
	for _, l := range labels {
		fmt.Fprintf(w, "| %s |", l)
		for _, c := range columns {
			if figure := median(of[l], c.figure); math.IsNaN(figure) {
				fmt.Fprint(w, " |")
			} else {
				fmt.Fprintf(w, " "+c.format+" |", figure)
			}
		}
		fmt.Fprintln(w)
	}
}

// A checked sample says what was wrong in it; "" = nothing.
type checked interface{ fault() string }

// printFaults prints what was wrong in samples.
func printFaults[T checked](w io.Writer, list []T) {
	for _, s := range list {
		if fault := s.fault(); fault != "" {
			fmt.Fprintf(w, "\nINVALID: %s\n", fault)
		}
	}
}

// countFaults returns how many samples had something wrong.
func countFaults[T checked](list []T) (n int) {
	for _, s := range list {
		if s.fault() != "" {
			n++
		}
	}
	return n
}

// median returns the median of f over list; of an even number, the upper one.
func median[T any](list []T, f func(T) float64) float64 {
	values := make([]float64, len(list))
	for i, s := range list {
		values[i] = f(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
