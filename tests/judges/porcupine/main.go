// Says whether histories of a store are linearizable: one history a line on stdin, a list of operations as JSON; one
// line on stdout for each, "ok", "illegal" or "unknown" if the time for it is over.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// What a client has asked, and what it was told. Times are in ns; Return is 0 for an outcome that nobody knows.
type operation struct {
	Client int    `json:"client"`
	Call   int64  `json:"call"`
	Return int64  `json:"return"`
	Kind   string `json:"kind"` // get, put, swap, or pair: a transaction that puts one value under both keys
	Key    int    `json:"key"`
	Value  string `json:"value"`
	Old    string `json:"old"`   // swap: the value that the key must have
	Told   string `json:"told"`  // get: the value; swap: "done" or "conflict"
}

type state [2]string

func step(before, input, output interface{}) (bool, interface{}) {
	now, asked := before.(state), input.(operation)
	isKnown := asked.Return != 0
	switch asked.Kind {
	case "get":
		return !isKnown || now[asked.Key] == asked.Told, now
	case "put":
		now[asked.Key] = asked.Value
	case "pair":
		now[0], now[1] = asked.Value, asked.Value
	case "swap":
		holds := now[asked.Key] == asked.Old
		if isKnown && holds != (asked.Told == "done") {
			return false, now
		}
		if holds {
			now[asked.Key] = asked.Value
		}
	}
	return true, now
}

var model = porcupine.Model{
	Init: func() interface{} { return state{} },
	Step: step,
}

func judge(history []operation) string {
	operations := make([]porcupine.Operation, 0, len(history))
	for _, one := range history {
		end := one.Return
		if end == 0 {
			if one.Kind == "get" {
				continue
			}
			end = math.MaxInt64
		}
		operations = append(operations, porcupine.Operation{
			ClientId: one.Client, Input: one, Call: one.Call, Output: nil, Return: end,
		})
	}
	switch porcupine.CheckOperationsTimeout(model, operations, time.Minute) {
	case porcupine.Ok:
		return "ok"
	case porcupine.Illegal:
		return "illegal"
	}
	return "unknown"
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			var history []operation
			if bad := json.Unmarshal(line, &history); bad != nil {
				fmt.Fprintln(os.Stderr, bad)
				os.Exit(1)
			}
			fmt.Println(judge(history))
		}
		if err != nil {
			return
		}
	}
}
