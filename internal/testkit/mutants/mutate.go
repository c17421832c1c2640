package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A mutant is one fault.
type mutant struct {
	number                         int
	file, function, operator, text string // where and what it is; the text is that of the code
	line                           int
	start, end                     int    // offsets of the text
	before, after                  string // what comes around it
	operatorAt, instead            int    // of a binary expression: the operator's offset and length,
	between                        string // and what comes in its place

	state string
	asked int // how many suites have not noticed it
}

// key names a mutant in accepted.txt, whatever line it is on; the second of one text in a function ends with #2.
func (m *mutant) key() string {
	return strings.Join([]string{m.file, m.function, m.operator, m.text}, " | ")
}

// mutated is a package with its mutants.
type mutated struct {
	root, pkg, overlay string
	mutants            []*mutant
}

// helpers is a file of the package, which decides at run time which mutant is there.
//
//go:embed helpers.txt
var helpers string

// binary says how the operators of binary expressions are mutated: by a call, or by what stands before, between and
// after the operands. N stands for the number.
var binary = map[token.Token][4]string{
	token.LSS:  {"< to <=", "mutantLess(N, ", ",", ")"},
	token.LEQ:  {"<= to <", "mutantAtMost(N, ", ",", ")"},
	token.GTR:  {"> to >=", "mutantMore(N, ", ",", ")"},
	token.GEQ:  {">= to >", "mutantAtLeast(N, ", ",", ")"},
	token.ADD:  {"+ to -", "mutantPlus(N, ", ",", ")"},
	token.SUB:  {"- to +", "mutantMinus(N, ", ",", ")"},
	token.EQL:  {"== to !=", "(mutantOn(N) != (", "==", "))"},
	token.NEQ:  {"!= to ==", "(mutantOn(N) != (", "!=", "))"},
	token.LAND: {"&& to or", "(mutantOn(N) != ((mutantOn(N) != (", ")) && (mutantOn(N) != (", "))))"},
	token.LOR:  {"or to &&", "(mutantOn(N) != ((mutantOn(N) != (", ")) || (mutantOn(N) != (", "))))"},
}

// mutate finds the mutants of a package, and writes its files with those that compile.
func mutate(ctx context.Context, root, pkg, folder string) (*mutated, error) {
	p := &mutated{root: root, pkg: pkg, overlay: filepath.Join(folder, "overlay.json")}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	list := exec.CommandContext(ctx, "go", "list", "-f", `{{.Name}} {{join .GoFiles " "}}`, "./"+pkg)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	names := strings.Fields(string(out))
	sources := map[string][]byte{}
	for _, name := range names[1:] {
		file := filepath.Join(pkg, name)
		if sources[file], err = os.ReadFile(filepath.Join(root, file)); err != nil {
			return nil, err
		}
		if err := p.collect(file, sources[file]); err != nil {
			return nil, err
		}
	}
	for { // until it compiles
		overlay := map[string]string{}
		write := func(name string, text []byte) error {
			to := filepath.Join(folder, filepath.Base(name))
			overlay[filepath.Join(root, name)] = to
			return os.WriteFile(to, text, 0o666)
		}
		err := write(filepath.Join(pkg, "zz_mutants.go"), fmt.Appendf(nil, helpers, names[0]))
		for file, text := range sources {
			if err == nil {
				err = write(file, render(file, text, p.mutants))
			}
		}
		text, err2 := json.Marshal(map[string]any{"Replace": overlay})
		if err != nil || err2 != nil {
			return nil, fmt.Errorf("%w, %w", err, err2)
		}
		if err := os.WriteFile(p.overlay, text, 0o666); err != nil {
			return nil, err
		}
		report, err := p.compile(ctx, "build", "-gcflags=-e", "./"+pkg)
		if err == nil {
			return p, nil
		}
		wrong := map[int]bool{}
		for _, m := range mutantName.FindAllStringSubmatch(report, -1) {
			number, _ := strconv.Atoi(m[1]) // the pattern has checked it
			wrong[number] = true
		}
		if len(wrong) == 0 {
			return nil, fmt.Errorf("%w: %s", err, report)
		}
		p.mutants = slices.DeleteFunc(p.mutants, func(m *mutant) bool { return wrong[m.number] })
	}
}

// compile runs a command of go with the mutants.
func (p *mutated) compile(ctx context.Context, command string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{command, "-overlay", p.overlay}, args...)...)
	cmd.Dir = p.root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mutantName is the name of a file in the compiler's errors: render says that a mutant stands in a file of its own.
var mutantName = regexp.MustCompile(`mutant(\d+)\.go:`)

// A piece is what render puts at an offset: the end of a mutant, its operator or its beginning, in this order.
type piece struct {
	at, order, number int
	text              string
	instead           int // of so many bytes
}

// render writes a file with its mutants. Those inside of others have higher numbers.
func render(file string, source []byte, mutants []*mutant) []byte {
	var pieces []piece
	for _, m := range mutants {
		if m.file != file {
			continue
		}
		before := fmt.Sprintf("/*line mutant%d.go:1:1*/%s", m.number, m.before)
		pieces = append(pieces, piece{m.start, 2, m.number, before, 0}, piece{m.end, 0, -m.number, m.after, 0})
		if m.instead > 0 {
			pieces = append(pieces, piece{m.operatorAt, 1, 0, m.between, m.instead})
		}
	}
	slices.SortFunc(pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order), cmp.Compare(a.number, b.number))
	})
	var out bytes.Buffer
	at, open := 0, []string{""}
	for _, p := range pieces {
		out.Write(source[at:p.at])
		out.WriteString(p.text)
		at = p.at + p.instead
		switch p.order {
		case 0:
			open = open[:len(open)-1]
			place := cmp.Or(open[len(open)-1],
				fmt.Sprintf("%s:%d:1", filepath.Base(file), 1+bytes.Count(source[:at], []byte("\n"))))
			fmt.Fprintf(&out, "/*line %s*/", place)
		case 2:
			open = append(open, fmt.Sprintf("mutant%d.go:1:1", p.number))
		}
	}
	out.Write(source[at:])
	return out.Bytes()
}

// collect adds the mutants of a file.
func (p *mutated) collect(file string, source []byte) error {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(tree) {
		return err
	}
	offset := func(at token.Pos) int { return set.Position(at).Offset }
	same := map[string]int{} // mutants by key
	for _, d := range tree.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || f.Name.Name == "init" {
			continue
		}
		add := func(n ast.Node, operator, before, after string) *mutant {
			number := strconv.Itoa(len(p.mutants) + 1)
			text := strings.Join(strings.Fields(string(source[offset(n.Pos()):offset(n.End())])), " ")
			if len(text) > 100 {
				text = strings.ToValidUTF8(text[:100], "") + "…"
			}
			m := &mutant{
				number: len(p.mutants) + 1, file: file, line: set.Position(n.Pos()).Line, function: f.Name.Name,
				operator: operator, text: strings.ReplaceAll(text, " | ", " or "),
				start: offset(n.Pos()), end: offset(n.End()),
				before: strings.ReplaceAll(before, "N", number), after: after,
			}
			key := m.key()
			if same[key]++; same[key] > 1 {
				m.text += fmt.Sprint(" #", same[key])
			}
			p.mutants = append(p.mutants, m)
			return m
		}
		var types []*ast.FuncType // of the functions around, the innermost last
		var nodes []ast.Node
		ast.Inspect(f, func(n ast.Node) bool {
			if n == nil {
				switch nodes[len(nodes)-1].(type) {
				case *ast.FuncDecl, *ast.FuncLit:
					types = types[:len(types)-1]
				}
				nodes = nodes[:len(nodes)-1]
				return true
			}
			if parent := len(nodes) - 1; parent >= 0 && isIn(nodes[parent], n) && isDeletable(n) {
				add(n, "delete", "if !mutantOn(N) { ", " }")
			}
			switch n := n.(type) {
			case *ast.GenDecl: // constants
				if n.Tok == token.CONST {
					return false
				}
			case *ast.FuncDecl:
				types = append(types, n.Type)
			case *ast.FuncLit:
				types = append(types, n.Type)
			case *ast.IfStmt:
				if n.Else == nil {
					add(n.Cond, "never", "!mutantOn(N) && (", ")")
				}
			case *ast.ReturnStmt:
				if last := lastError(n, types[len(types)-1]); last != nil {
					add(last, "nil error", "mutantError(N, ", ")")
				}
			case *ast.BinaryExpr:
				if how, ok := binary[n.Op]; ok {
					m := add(n, how[0], how[1], how[3])
					m.operatorAt, m.instead = offset(n.OpPos), len(n.Op.String())
					m.between = strings.ReplaceAll(how[2], "N", strconv.Itoa(m.number))
				}
			}
			nodes = append(nodes, n)
			return true
		})
	}
	return nil
}

// isIn reports whether a node is one of a list of statements.
func isIn(parent, n ast.Node) bool {
	switch parent := parent.(type) {
	case *ast.CommClause:
		return n != parent.Comm
	case *ast.BlockStmt, *ast.CaseClause:
		return true
	}
	return false
}

// isDeletable reports whether a statement does something, and the function ends as before without it.
func isDeletable(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ExprStmt:
		call, isCall := n.X.(*ast.CallExpr)
		if !isCall {
			return true
		}
		name, isName := call.Fun.(*ast.Ident)
		return !isName || name.Name != "panic"
	case *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt:
		return true
	case *ast.AssignStmt:
		return n.Tok != token.DEFINE
	}
	return false
}

// lastError returns the expression of a return that is its error; nil if it is nil, or none is there.
func lastError(n *ast.ReturnStmt, f *ast.FuncType) ast.Expr {
	if len(n.Results) == 0 || f.Results == nil || len(n.Results) != f.Results.NumFields() {
		return nil
	}
	if id, ok := f.Results.List[len(f.Results.List)-1].Type.(*ast.Ident); !ok || id.Name != "error" {
		return nil
	}
	last := n.Results[len(n.Results)-1]
	if id, ok := last.(*ast.Ident); ok && id.Name == "nil" {
		return nil
	}
	return last
}
