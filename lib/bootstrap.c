/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the bootstraps.  Knows: how each interpreter sets up a program's own file, and nothing else.
 *
 * Why they exist: the code must find modules and data beside it in the working folder, but a file code.py must
 * never lie there (`import pdb` imports `code`), nor may its private folder be a place to import from.
 */
#include "bootstrap.h"

/*
 * Python, any 3.x; no -P needed, and nothing leaks to child processes as PYTHONPATH would.
 * - Nothing is imported that is not loaded already: the working folder could hold a module of that name.
 * - __file__ and argv[0] are cwd/code.py, so that `dirname(__file__)` is the workspace; the code object keeps the real
 *   path, so that tracebacks show source lines, also those printed by C code.
 * - multiprocessing's spawn and forkserver run the main file again in the child: they are told the real path,
 *   when (and only when) the program imports multiprocessing.spawn.
 * - An uncaught exception is reported without our frame, then raised again silently: exit status, atexit and
 *   death by SIGINT stay Python's own.
 */
const char sbx_bootstrap_python[] =
	"def _(s):\n"
	" _,p,f=s.argv[:3];m=s.modules['__main__'];del m._;s.argv=s.argv[2:]\n"
	" if not getattr(s.flags,'safe_path',0):s.path[0]=f.rpartition('/')[0]or'/'\n"
	" import _frozen_importlib_external as e\n"
	" m.__file__=f;m.__cached__=None;m.__loader__=e.SourceFileLoader('__main__',p)\n"
	" class F:\n"
	"  def find_spec(n,*a):\n"
	"   if n!='multiprocessing.spawn':return\n"
	"   s.meta_path.remove(F)\n"
	"   for i in s.meta_path:\n"
	"    r=i.find_spec(n,*a)\n"
	"    if r:break\n"
	"   else:return\n"
	"   x=r.loader.exec_module\n"
	"   def X(q):\n"
	"    x(q);h=q.get_preparation_data\n"
	"    def get_preparation_data(name):\n"
	"     d=h(name)\n"
	"     if d.get('init_main_from_path')==f:d['init_main_from_path']=p\n"
	"     return d\n"
	"    q.get_preparation_data=get_preparation_data\n"
	"   r.loader.exec_module=X\n"
	"   return r\n"
	" s.meta_path.insert(0,F)\n"
	" try:\n"
	"  with open(p,'rb')as o:c=o.read()\n"
	"  exec(compile(c,p,'exec',0,1),m.__dict__)\n"
	" except SystemExit:raise\n"
	" except BaseException as x:\n"
	"  t=x.__traceback__.tb_next\n"
	"  try:s.excepthook(type(x),x.with_traceback(t),t)\n"
	"  finally:s.excepthook=lambda*a:0\n"
	"  raise\n"
	"_(__import__('sys'))";

/*
 * Node 18 and later.
 * - What -e adds to the global object is taken away again, so that `typeof require` and the like are as in a file; Node
 *   puts `module` back when the script has ended, hence the setter.
 * - CommonJS: a Module with the pretended name is compiled by Node's own loader.  ES modules: loader hooks answer for
 *   one URL; in-thread ones where Node has them.  Which of the two: extension, package.json, syntax, as Node does.
 * - fork(__filename), new Worker(__filename) and cluster start the bootstrap again: there is no such file.
 * - TypeScript: Node strips the types if it can; else exit 127 with what would help.
 */
const char sbx_bootstrap_node[] =
	"(()=>{\n"
	"const g=globalThis,M=g.require('module'),R=g.require,S=R('fs'),P=R('path'),B=process._eval;\n"
	"const[,p,f]=process.argv,d=P.dirname(f),x=P.extname(f);\n"
	"process.argv.splice(1,2,f);delete process._eval;process.execArgv=[];\n"
	"const K=g.crypto;\n"
	"for(const k of[...M.builtinModules,'module','exports','require','__filename','__dirname'])\n"
	" if(k!=='crypto'&&k!=='process'&&k!=='console')delete g[k];\n"
	"Object.defineProperty(g,'module',{get(){},set(){delete g.module},configurable:true});\n"
	"if(K&&K.webcrypto)Object.defineProperty(g,'crypto',{value:K.webcrypto,configurable:true,"
	"writable:true,enumerable:true});\n"
	"let s=S.readFileSync(p,'utf8');\n"
	"if(s.charCodeAt(0)===65279)s=s.slice(1);\n"
	"if(x==='.ts'){\n"
	" if(!M.stripTypeScriptTypes){\n"
	"  console.error('no interpreter for typescript in this sandbox: looked for tsx, ts-node, deno, "
	"bun, node >= 22.13 (node is '+process.version+')');\n"
	"  process.exit(127)}\n"
	" const w=process.emitWarning;process.emitWarning=()=>{};\n"
	" try{s=M.stripTypeScriptTypes(s)}finally{process.emitWarning=w}}\n"
	"const u=R('url').pathToFileURL(f).href,is=n=>n===f||n===u||(n&&n.href===u);\n"
	"if(/worker_threads|child_process|cluster/.test(s)){\n"
	" const c=R('child_process'),F=c.fork,w=R('worker_threads'),W=w.Worker;\n"
	" c.fork=function fork(n,a,o){\n"
	"  if(is(n)){\n"
	"   if(a&&!Array.isArray(a)){o=a;a=[]}\n"
	"   o={...o};o.execArgv=[...(o.execArgv||[]),'-e',B,p];n=f}\n"
	"  return F(n,a||[],o)};\n"
	" w.Worker=class Worker extends W{constructor(n,o){\n"
	"  if(is(n)&&!(o&&o.eval)){\n"
	"   o={...o,eval:true};\n"
	"   n='process.argv.splice(1,1,'+JSON.stringify(p)+','+JSON.stringify(f)+');process._eval='+"
	"JSON.stringify(B)+';'+B}\n"
	"  super(n,o)}};\n"
	" M.syncBuiltinESMExports()}\n"
	"let e=x==='.mjs';\n"
	"if(!e&&x!=='.cjs'){\n"
	" let t,q=d;\n"
	" for(;;){\n"
	"  try{t=JSON.parse(S.readFileSync(P.join(q,'package.json'),'utf8')).type;break}\n"
	"  catch(r){if(r instanceof SyntaxError)break}\n"
	"  if(q===P.dirname(q))break;\n"
	"  q=P.dirname(q)}\n"
	" e=t==='module';\n"
	" if(!e&&t!=='commonjs'&&/\\b(import|export|await)\\b/.test(s))\n"
	"  try{R('vm').compileFunction(s.replace(/^#!/,'//'),['exports','require','module','__filename','__dirname'])}\n"
	"  catch(r){\n"
	"   const E=r=>/^(Cannot use import statement|Unexpected token 'export'|Cannot use 'import.meta')/"
	".test(r.message);\n"
	"   e=E(r);\n"
	"   if(!e&&/\\bawait\\b/.test(s))\n"
	"    try{new(R('vm').Script)('async()=>{'+s.replace(/^#!/,'//')+'\\n}');e=true}catch(r){e=E(r)}}}\n"
	"if(!e){\n"
	" const m=new M(f,null);m.id='.';m.filename=f;m.paths=M._nodeModulePaths(d);\n"
	" process.mainModule=m;M._cache[f]=m;\n"
	" m._compile(s,f,'commonjs');m.loaded=true;return}\n"
	"const own=(n,c)=>{try{return/^(\\.{0,2}\\/|file:)/.test(n)&&new URL(n,c.parentURL).href===u}catch{return false}};\n"
	"if(M.registerHooks)M.registerHooks({\n"
	" resolve:(n,c,k)=>own(n,c)?{url:u,format:'module',shortCircuit:true}:k(n,c),\n"
	" load:(n,c,k)=>n===u?{format:'module',source:s,shortCircuit:true}:k(n,c)});\n"
	"else if(M.register)M.register('data:text/javascript,'+encodeURIComponent(\n"
	" 'let u,s;export function initialize(d){u=d.u;s=d.s}const own='+own+'\\n'+\n"
	" 'export function resolve(n,c,k){return own(n,c)?{url:u,format:\"module\",shortCircuit:true}:k(n,c)}'+\n"
	" 'export function load(n,c,k){return n===u?{format:\"module\",source:s,shortCircuit:true}:k(n,c)}\\n//# sourceURL=sbxfs'),\n"
	" {data:{u,s}});\n"
	"else{\n"
	" console.error('node '+process.version+' is too old for ES modules here: 18.19, 20.6 or later is needed');\n"
	" process.exit(127)}\n"
	"const h=()=>{\n"
	" if(process.exitCode===undefined){\n"
	"  process.exitCode=13;console.error('Warning: Detected unsettled top-level await in '+f)}};\n"
	"process.on('exit',h);\n"
	"import(u).finally(()=>process.off('exit',h))\n"
	"})()";

/*
 * Ruby: compiled under the pretended name, so that require_relative, __dir__ and `__FILE__ == $0` are right; DATA is
 * what follows __END__.  Other Rubies than MRI cannot do that and load the file.
 */
const char sbx_bootstrap_ruby[] =
	"lambda{\n"
	"p,f=ARGV.shift(2);s=File.read(p);$0=f\n"
	"if s=~/^__END__\\r?\\n/\n"
	" o=File.open(p);o.seek($~.pre_match.bytesize+$~[0].bytesize);Object.const_set(:DATA,o)\n"
	"end\n"
	"defined?(RubyVM::InstructionSequence)?RubyVM::InstructionSequence.compile(s,f,f,1).eval : load(p)\n"
	"}.call";

/*
 * Go: `go run` turns every failure of the program into 1.  Built in /tmp, then replaced by the program: its status and
 * signals are its own.  The file is gone before it starts, so that runs do not fill /tmp.
 */
const char sbx_bootstrap_go[] =
	"d=$(mktemp -d) || exit 126\n"
	"go build -o \"$d/program\" \"$1\" || { r=$?; rm -rf \"$d\"; exit $r; }\n"
	"shift; exec 9<\"$d/program\"; rm -rf \"$d\"; exec /proc/self/fd/9 \"$@\"";
